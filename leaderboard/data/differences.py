"""Each variant's paired difference from the control by subset, by group of subsets, and overall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from harness.analysis.floor import is_at_floor
from harness.analysis.paired_tests import SIGNIFICANT, Scored, compare, contexts_of, scores_of
from harness.analysis.ranking import level_of
from harness.results.schema import Cell, Difference, Line, Pair
from leaderboard.data.disk_cache import Json
from leaderboard.data.levels import level_name, row_names
from leaderboard.data.library import Group, Library, lines_of

OVERALL, GROUP, SUBSET = "overall", "group", "subset"
#: the subset that the KVzap paper (arXiv 2601.07891, appendix) leaves out of LongBench's mean
OUTLIER = "trec"
WITHOUT = f"without {OUTLIER}"
TIE, AT_FLOOR, NONE = "≈", "*", "–"
#: what :func:`difference_table` adds to a difference's fields
TABLE = ("level", "name", "title", "text", "says", "removed", "place")


class Column(NamedTuple):
    """A mean over subsets: of all that were run, of a named group, or one alone. ``of`` is how many there should be."""

    kind: str
    name: str
    subsets: tuple[str, ...]
    of: int

    @property
    def label(self) -> str:
        part = f"{len(self.subsets)} of {self.of}"
        if len(self.subsets) == self.of:
            return self.name
        return f"mean of {part}" if self.kind == OVERALL else f"{self.name} ({part})"


#: what runs at two lengths may differ in and still stand side by side
_APART = ("benchmark", "length", "samples", "seed", "control", "answer limit")


def siblings(groups: Sequence[Group], group: Group) -> list[Group]:
    """``group`` and the others of its model and benchmark at other lengths, shortest first; one a length, the largest.
    RULER's published lengths are benchmarks of their own and count as lengths of one."""
    alike = {name: value for name, value in group.part.basis.items() if name not in _APART}
    found: dict[tuple[int, str], Group] = {}
    for other in sorted(groups, key=lambda one: (one is not group, -len(one.entries), one.key)):
        mine = {name: value for name, value in other.part.basis.items() if name not in _APART}
        if mine == alike and _family(other.part.benchmark) == _family(group.part.benchmark):
            found.setdefault((other.part.length or 0, other.part.benchmark), other)
    return [found[place] for place in sorted(found)]


def _family(benchmark: str) -> str:
    first, _, rest = benchmark.partition("ruler-")
    return f"{first}ruler" if rest else benchmark


def columns(subsets: Sequence[str], of: int | None, groups: Mapping[str, Sequence[str]]) -> list[Column]:
    """The columns of a table: overall, the groups of which a subset was run, each subset.

    of   subsets that the benchmark has; None where the run does not tell
    """
    overall = Column(OVERALL, "all", tuple(subsets), max(of or 0, len(subsets)))
    found = [overall]
    for name, members in groups.items():
        here = tuple(subset for subset in subsets if subset in members)
        if here:
            found.append(Column(GROUP, name.replace("_", " "), here, len(members)))
    return [*found, *(Column(SUBSET, subset, (subset,), 1) for subset in subsets)]


def columns_of(library: Library, group: Group) -> list[Column]:
    """The columns that a group's board has; no subsets where the benchmark has but one."""
    board = library.board(group)
    known = list(dict.fromkeys(cell.subset for cell in board.cells if cell.subset is not None))
    of = next((cell.of_subsets for cell in board.cells if cell.of_subsets), None)
    fact = board.runs[0].facts.get(group.part.benchmark)
    found = columns(known, of, fact.groups if fact else {})
    return found if max(of or 0, len(known)) > 1 else found[:1]


def without_outlier(wanted: Sequence[Column]) -> list[Column]:
    """The columns without trec's own, and with every mean that trec is in taken over its other subsets. The overall one
    is the benchmark's own mean without trec, where it has that."""
    own = next((column for column in wanted if column.name == WITHOUT), None)
    found = [own] if own else []
    for column in wanted:
        rest = tuple(subset for subset in column.subsets if subset != OUTLIER)
        if len(rest) == len(column.subsets):
            found += [column] if column is not own else []
        elif rest and not (own and column.kind == OVERALL):
            name = WITHOUT if column.kind == OVERALL else f"{column.name} {WITHOUT}"
            found.append(Column(GROUP, name, rest, column.of - 1))
    return found


def titles(wanted: Sequence[Column], rows: Iterable[ColumnDifference]) -> list[tuple[str, str, str]]:
    """Kind, name and title of each column; a star where the control is at the floor. No two titles are the same."""
    floors = {(row.kind, row.column) for row in rows if row.floor}
    labels = Counter(column.label for column in wanted)
    return [
        (
            column.kind,
            column.name,
            column.label
            + (f", {column.kind}" if labels[column.label] > 1 else "")
            + (f" {AT_FLOOR}" if (column.kind, column.name) in floors else ""),
        )
        for column in wanted
    ]


class ColumnDifference(NamedTuple):
    """What a column has of a variant: its score, the control's, and the paired difference of the two. The control's own
    has no difference.

    floor   the control is at the floor in this column
    tie     overall that of the ranks; elsewhere by the column's own interval and test, see :func:`_tie`
    """

    variant: str
    kind: str
    column: str
    score: float | None
    control: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_holm: float | None
    tie: bool | None
    n: int
    floor: bool


def differences(
    lines: Iterable[Line], wanted: Sequence[Column], chance: float = 0.0, seed: int = 0, pairs: Sequence[Pair] = ()
) -> list[ColumnDifference]:
    """One row per column and variant, the control's first.

    The comparison is :func:`harness.analysis.paired_tests.compare`'s, with a Holm table per column. A variant's overall
    one is taken from ``pairs``, those of the summary, where it is there. Scores are means over subsets; null where a
    subset of the column has none. Without a control there are no rows.
    """
    by_variant: dict[str, list[Line]] = {}
    for line in lines:
        by_variant.setdefault(line.variant, []).append(line)
    contexts = contexts_of(line for own in by_variant.values() for line in own)
    control = next((name for name, own in by_variant.items() if own[0].level_kind == "none"), None)
    if control is None:
        return []
    scores = {name: scores_of(own) for name, own in by_variant.items()}
    everything = {line.subset for own in by_variant.values() for line in own}
    known = {pair.a: pair for pair in pairs if pair.against == "control" and pair.b == control}
    found = []
    for column in wanted:
        here = {name: _within(own, column.subsets) for name, own in scores.items()}
        pruned = [name for name in here if name != control]
        if set(column.subsets) == everything and all(name in known for name in pruned):
            rows: Sequence[Difference] = [known[name] for name in pruned]
        else:
            rows = compare([(here[name], here[control]) for name in pruned], seed, contexts=contexts)
        base = _mean(here[control], column.subsets)
        floor = base is not None and is_at_floor(base, chance)
        place = (column.kind, column.name, base, base)
        found.append(ColumnDifference(control, *place, None, None, None, None, None, len(here[control]), floor))
        for name, row in zip(pruned, rows, strict=True):
            score, tie = _mean(here[name], column.subsets), _tie(row, column)
            figures = (row.difference, row.low, row.high, row.p_holm)
            found.append(
                ColumnDifference(name, column.kind, column.name, score, base, *figures, tie=tie, n=row.n, floor=floor)
            )
    return found


def differences_of(library: Library, group: Group, wanted: Sequence[Column]) -> list[ColumnDifference]:
    """:func:`differences` of a group's lines; kept until a file of the group changes."""
    board = library.board(group)
    fact = board.runs[0].facts.get(group.part.benchmark)

    def make() -> Json:
        chance = fact.chance if fact else 0.0
        return {"rows": differences(lines_of(group), wanted, chance, board.runs[0].seed, board.pairs)}

    kept = library.kept("differences", group, make, [list(column) for column in wanted])
    return [ColumnDifference(*row) for row in kept["rows"]]


def _tie(row: Difference, column: Column) -> bool | None:
    """Overall that of the ranks. Elsewhere: the column's own interval holds 0, or its own p is 0.05 or more, since ten
    samples can be significant in no Holm table as long as a column. Of few samples the interval alone is too narrow: of
    ten it leaves out 0 where four differ, all in one direction, which coins do once in eight throws."""
    if row.difference is None or column.kind == OVERALL:
        return row.tie
    within = row.low is not None and row.high is not None and row.low <= 0 <= row.high
    return within or (row.p is not None and row.p >= SIGNIFICANT)


def _within(scores: Mapping[str, Scored], subsets: Sequence[str]) -> dict[str, Scored]:
    return {sample: scored for sample, scored in scores.items() if scored.subset in subsets}


def _mean(scores: Mapping[str, Scored], subsets: Sequence[str]) -> float | None:
    strata = [[one.score for one in scores.values() if one.subset == subset] for subset in subsets]
    return fmean(map(fmean, strata)) if strata and all(strata) else None


def difference_table(
    rows: Iterable[ColumnDifference], cells: Sequence[Cell], columns: Sequence[tuple[str, str, str]]
) -> pd.DataFrame:
    """What :mod:`leaderboard.charts.differences` draws: a row per variant and column, in their order.

    cells     overall cells of the variants to show, in order; the control is among them
    columns   kind, name, title of each
    """
    place = {(kind, name): number for number, (kind, name, _) in enumerate(columns)}
    by_cell = {(row.variant, place[key]): row for row in rows if (key := (row.kind, row.column)) in place}
    names = row_names(cells, by_level=False)
    found = []
    for cell in cells:
        level = level_of(cell)
        for number, (_, _, title) in enumerate(columns):
            row = by_cell.get((cell.variant, number))
            if row is not None:
                told = {"level": level_name(level) if level else "", "name": names[cell.variant], "title": title}
                words = {"text": cell_text(row, level is None), "says": says(row, level is None)}
                found.append({**row._asdict(), **told, **words, "removed": cell.removed_mean, "place": number})
    return pd.DataFrame(found, columns=[*ColumnDifference._fields, *TABLE])


def cell_text(row: ColumnDifference, is_control: bool) -> str:
    """The control's score, or a difference from it; ``≈``: a tie, ``*``: the control is at the floor."""
    value = row.score if is_control else row.difference
    if value is None:
        return NONE
    text = f"{value:.1f}" if is_control else f"{value:+.1f}".replace("-", "−")
    return text + (AT_FLOOR if row.floor else TIE if row.tie else "")


def says(row: ColumnDifference, is_control: bool) -> str:
    """What a cell's colour means, in a word."""
    if is_control:
        return "control at the floor" if row.floor else "control"
    if row.difference is None:
        return "nothing to compare"
    if row.floor:
        return "control at the floor: no comparison"
    return "tie" if row.tie else "worse" if row.difference < 0 else "better"
