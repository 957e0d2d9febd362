"""The tables that ``report`` prints, as do ``run`` and ``compare``: a board in words and figures, for every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.analysis.boards import Board
from harness.analysis.floor import AT_FLOOR
from harness.analysis.ranking import FAR, is_partial, level_of, unit
from harness.reporting.columns import counted, extra_columns, number, score_column, settings
from harness.reporting.metric_tables import group_table, metric_table
from harness.reporting.table import Sheet, Table
from harness.results.schema import Cell, Difference, Pair, Rank

#: most subsets that get a column of their own
MOST_SUBSETS = 13


def sheet(board: Board, every_pair: bool = False) -> Sheet:
    """A board's scores, further figures and curves; ``every_pair`` adds the paired tables."""
    overall = _overall(board)
    more = (
        group_table(overall),
        metric_table(overall, board.metrics, board.pairs),
        _curves(board) if board.curves else None,
    )
    tables = [_scores(board), *(table for table in more if table is not None)]
    if every_pair:
        tables += pair_tables(board.pairs)
    return Sheet(board.title, _lines(board), tables, [alarm.text for alarm in board.alarms], board.notes)


def _lines(board: Board) -> list[str]:
    basis = board.basis
    overall = _overall(board)
    samples = max((cell.n for cell in overall), default=0)
    told = settings(overall[:1], board.runs[0].configuration.max_new_tokens)
    facts = [f"{basis['dtype']} on {basis['device']}", f"{samples} samples", f"seed {basis['seed']}"]
    if basis["query mode"] != "agnostic":
        facts.append(f"query mode {basis['query mode']}")
    return [
        ", ".join(facts) + (f"; {told}" if told else ""),
        "runs: " + ", ".join(run.name for run in board.runs),
        *_separated(board),
    ]


def _separated(board: Board) -> list[str]:
    """How much of what could be told apart is told apart, to put beside another board's."""
    removed = {cell.variant: cell.removed_mean for cell in board.cells if cell.subset is None}

    def alike(pair: Pair) -> bool:
        """Whether as much was removed, and not only requested."""
        a, b = removed.get(pair.a), removed.get(pair.b)
        return a is not None and b is not None and abs(a - b) <= FAR

    told = [pair for pair in board.pairs if pair.against == "level" and pair.difference is not None]
    known = [pair for pair in told if alike(pair)]
    apart = sum(not pair.tie for pair in known)
    return [f"{apart:,} of {len(known):,} pairs of variants at like removed differ beyond a tie"] if known else []


def _overall(board: Board) -> list[Cell]:
    """Overall cells: the control, then level by level and query mode by query mode, in each the order of the runs;
    methods without figures last."""
    cells = [cell for cell in board.cells if cell.subset is None]
    modes = list(dict.fromkeys(cell.query_mode for cell in cells))

    def place(cell: Cell) -> tuple[Any, ...]:
        level = level_of(cell)
        if cell.status == "unsupported":
            return (2,)
        if level is None:
            return (0,)
        return 1, level[0] != "removed", level[0], float(level[1]), modes.index(cell.query_mode)

    return sorted(cells, key=place)


def _rivals(cell: Cell) -> tuple[Any, ...]:
    """Cells are ranked among those that have this in common."""
    return level_of(cell), cell.query_mode, cell.status


def level_text(level: tuple[str, Any] | None) -> str:
    """A level as a column: a removed fraction, pairs kept, or tau."""
    if level is None:
        return ""
    kind, value = level
    shown = f"{value:g}" if isinstance(value, float | int) else str(value)
    return {"removed": "", "keep_tokens": "keep ", "threshold": "tau "}[kind] + shown


def _scores(board: Board) -> Table:
    overall = _overall(board)
    known = list(dict.fromkeys(cell.subset for cell in board.cells if cell.subset is not None))
    subsets = known if 1 < len(known) <= MOST_SUBSETS else []
    by_subset = {(cell.variant, cell.subset): cell for cell in board.cells}
    control = {pair.a: pair for pair in board.pairs if pair.against == "control"}
    ranked = {row.variant: row for row in board.ranks}
    partial = next((cell for cell in overall if is_partial(cell)), None)
    name = f"mean of {partial.n_subsets} of {partial.of_subsets}" if partial else "score"
    scored, more = score_column(overall, name), extra_columns(overall)
    common = _common_reason(board.ranks)
    header = ["variant", "asked", "rank", scored.name, "95 % interval", "against control", "p (Holm)"]
    header += ["removed", "min-max", "x smaller", "n", *(column.name for column in more), *subsets, "note"]
    rows, breaks = [], []
    for index, cell in enumerate(overall):
        if index and _rivals(cell) != _rivals(overall[index - 1]):
            breaks.append(index)
        pair, rank = control.get(cell.variant), ranked.get(cell.variant)
        rows.append(
            [
                cell.variant,
                level_text(level_of(cell)) if cell.status != "unsupported" else "",
                _rank(rank),
                scored.show(cell),
                _interval(cell.low, cell.high),
                difference(pair),
                p_value(pair.p_holm) if pair else "",
                *_removed(cell),
                counted(cell),
                *(column.show(cell) for column in more),
                *(_subset_score(by_subset.get((cell.variant, subset))) for subset in subsets),
                _note(cell, rank, common),
            ]
        )
    captions = _captions(overall, common)
    return Table("", header, rows, (0, len(header) - 1), tuple(breaks), captions)


def _subset_score(cell: Cell | None) -> str:
    return number(cell.score) + (" *" if cell.floor else "") if cell else ""


def _common_reason(ranked: Sequence[Rank]) -> str | None:
    """Why nothing has a rank, where that is one reason for all."""
    reasons = Counter(row.unranked for row in ranked)
    (most, count), *_ = reasons.most_common(1) or [(None, 0)]
    return most if most and count == len(ranked) else None


def _rank(row: Rank | None) -> str:
    if row is None or row.rank is None:
        return ""
    return f"{row.rank} tie" if row.tie else str(row.rank)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.1f} to {high:.1f}"


def difference(pair: Pair | Difference | None) -> str:
    """A paired difference with its interval; a tie is called one."""
    if pair is None:
        return ""
    if pair.difference is None:
        return "-"
    interval = "" if pair.low is None else f" ({_interval(pair.low, pair.high)})"
    return f"{pair.difference:+.1f}{interval}" + (" tie" if pair.tie else "")


def p_value(p: float | None) -> str:
    if p is None:
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _removed(cell: Cell) -> list[str]:
    mean = cell.removed_mean
    if mean is None:
        return ["", "", ""]
    factor = f"{1 / (1 - mean):.2f}" if mean < 1 else ""
    return [f"{mean:.3f}", f"{cell.removed_min:.3f}-{cell.removed_max:.3f}", factor]


def _note(cell: Cell, rank: Rank | None, common: str | None) -> str:
    notes = [cell.note] if cell.note else []
    if cell.bound_by:
        notes.append("bound by protection")
    if cell.floor:
        notes.append("floor")
    if cell.n_failed:
        notes.append(f"{cell.n_failed} not run")
    reason = rank.unranked if rank else None
    if reason and reason != common and reason not in notes:
        notes.append(f"not ranked: {reason}")
    return ", ".join(notes)


def _captions(overall: Sequence[Cell], common: str | None) -> list[str]:
    found = ["against control: mean paired difference; tie: not different, by its interval or by the adjusted p."]
    if common:
        found.append(f"No ranks: {common}.")
    if any(cell.low is None and cell.n for cell in overall):
        found.append(f"No interval under 10 {unit(overall)} a subset.")
    if any(cell.floor for cell in overall):
        found.append(f"floor, *: the control itself is {AT_FLOOR}, so nothing can be compared.")
    return found


def _curves(board: Board) -> Table:
    rows = []
    best = max((curve.area for curve in board.curves if curve.area is not None), default=None)
    for curve in sorted(board.curves, key=lambda one: -1.0 if one.area is None else one.area, reverse=True):
        shown = "-" if curve.area is None else f"{curve.area:.1f}"
        spots = ", ".join(f"{number(y)} ({x:.2f})" for x, y in curve.points if x is not None)
        rows.append([curve.curve, shown, spots, curve.why or ""])
    captions = ["Mean score over removed 0 to 0.875, by interpolation between measured points; no area beyond them."]
    if best is not None:
        captions.append("Areas have no interval: small differences say nothing.")
    header = ["curve", "area", "scores (at removed)", "why none"]
    return Table("Area under the curve", header, rows, (0, 2, 3), captions=captions)


def pair_tables(pairs: Sequence[Pair]) -> list[Table]:
    """The paired differences with the control, then those within each level."""
    tables = []
    against = [pair for pair in pairs if pair.against == "control"]
    if against:
        tables.append(pair_table("Paired differences from the control", [(pair.a, pair.b, pair) for pair in against]))
    levels: dict[tuple[str, float, str], list[Pair]] = {}
    for pair in pairs:
        if pair.against == "level":
            levels.setdefault((pair.asked.kind, pair.asked.value, pair.query_mode), []).append(pair)
    for (kind, value, mode), some in levels.items():
        told = f"{'removed ' if kind == 'removed' else ''}{level_text((kind, value))}"
        told += "" if mode == "agnostic" else f", query mode {mode}"
        tables.append(pair_table(f"Paired differences at {told}", [(pair.a, pair.b, pair) for pair in some]))
    return tables


def pair_table(title: str, pairs: Sequence[tuple[str, str, Difference]]) -> Table:
    """One Holm table: a - b of named variants."""
    header = ["a", "b", "a - b", "95 % interval", "a better", "a worse", "n", "test", "p", "p (Holm)", ""]
    rows = []
    for a, b, pair in pairs:
        none = pair.difference is None
        rows.append(
            [
                a,
                b,
                "-" if pair.difference is None else f"{pair.difference:+.1f}",
                _interval(pair.low, pair.high),
                "" if none else str(pair.better),
                "" if none else str(pair.worse),
                counted(pair) + (f" (+{pair.n_unpaired} in one alone)" if pair.n_unpaired else ""),
                "" if pair.test is None else pair.test + ("" if pair.exact or pair.test == "mcnemar" else ", drawn"),
                p_value(pair.p),
                p_value(pair.p_holm),
                "" if none or not pair.tie else "tie",
            ]
        )
    captions = []
    if any(pair.low is None and pair.n for *_, pair in pairs):
        captions.append(f"No interval under 10 {unit(pair for *_, pair in pairs)} a subset.")
    if any(pair.difference is None for *_, pair in pairs):
        captions.append("-: no samples in common in every subset, so nothing is compared.")
    return Table(title, header, rows, (0, 1, 7, 10), captions=captions)
