"""Each variant's paired difference from the control by subset, by group of subsets, and overall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from harness.analysis.paired_tests import SIGNIFICANT, Scored, compare, contexts_of, scores_of
from harness.analysis.summary import FLOOR
from harness.results.run_folder import Line
from leaderboard.data.library import Group, Library, readable

Row = dict[str, Any]
OVERALL, GROUP, SUBSET = "overall", "group", "subset"


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


def lines_of(group: Group) -> list[Line]:
    """The lines behind a group's board: each variant's from the first run that has it."""
    where = (group.part.benchmark, group.part.length)
    found: list[Line] = []
    known: set[str] = set()
    for run in readable([entry.reading for entry in group.entries])[0]:
        own = [line for line in run.lines if (line.benchmark, line.length) == where]
        found += [line for line in own if line.variant not in known]
        known.update(line.variant for line in own)
    return found


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


def differences(
    lines: Iterable[Line], wanted: Sequence[Column], chance: float = 0.0, seed: int = 0, pairs: Sequence[Row] = ()
) -> list[Row]:
    """One row a variant and column, the control's first: ``variant, kind, column`` (its name)``, score, control`` (the
    control's score)``, difference, low, high, p_holm, tie, n, floor``.

    The comparison is :func:`harness.analysis.paired_tests.compare`'s, with a Holm table a column, as the summary has
    one for the overall means, whose ``tie`` is that of the ranks. In the other columns it is another: the cell's own
    interval holds 0, or its own p is 0.05 or more. Holm's table of a column has a row for every variant, and ten
    samples can be significant in none that long. Where ``pairs`` has a variant's overall one already it is taken.
    Scores are means over subsets; null where a subset of the column has none. Without a control there are no rows.
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
    known = {pair["a"]: pair for pair in pairs if pair["against"] == "control" and pair["b"] == control}
    found = []
    for column in wanted:
        here = {name: _within(own, column.subsets) for name, own in scores.items()}
        pruned = [name for name in here if name != control]
        if set(column.subsets) == everything and all(name in known for name in pruned):
            rows: list[Row] = [known[name] for name in pruned]
        else:
            rows = compare([(here[name], here[control]) for name in pruned], seed, contexts=contexts)
        base = _mean(here[control], column.subsets)
        place = {"kind": column.kind, "column": column.name, "control": base}
        place["floor"] = base is not None and base <= max(chance, FLOOR - 1e-9)
        empty = dict.fromkeys(("difference", "low", "high", "p_holm", "tie"))
        found.append({**place, "variant": control, "score": base, "n": len(here[control]), **empty})
        for name, row in zip(pruned, rows, strict=True):
            told = {**{key: row[key] for key in (*empty, "n")}, "tie": _tie(row, column)}
            found.append({**place, "variant": name, "score": _mean(here[name], column.subsets), **told})
    return found


def differences_of(library: Library, group: Group, wanted: Sequence[Column]) -> list[Row]:
    """:func:`differences` of a group's lines; kept until a file of the group changes."""
    board = library.board(group)
    fact = board.runs[0].facts.get(group.part.benchmark)

    def make() -> dict[str, Any]:
        chance = fact.chance if fact else 0.0
        return {"rows": differences(lines_of(group), wanted, chance, board.runs[0].seed, board.pairs)}

    rows: list[Row] = library.kept("differences", group, make, [list(column) for column in wanted])["rows"]
    return rows


def _tie(row: Row, column: Column) -> bool | None:
    """Of few samples the interval alone is too narrow: of ten it leaves 0 out where four differ, all in one direction,
    which coins do once in eight throws."""
    if row["difference"] is None or column.kind == OVERALL:
        return row["tie"]
    within = row["low"] is not None and row["low"] <= 0 <= row["high"]
    return bool(within or row["p"] >= SIGNIFICANT)


def _within(scores: Mapping[str, Scored], subsets: Sequence[str]) -> dict[str, Scored]:
    return {sample: scored for sample, scored in scores.items() if scored.subset in subsets}


def _mean(scores: Mapping[str, Scored], subsets: Sequence[str]) -> float | None:
    strata = [[one.score for one in scores.values() if one.subset == subset] for subset in subsets]
    return fmean(map(fmean, strata)) if strata and all(strata) else None
