"""Ranks among the variants of one level, for cells that may be ranked, and curves over levels. No model code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.analysis.grouping import by_place, group
from harness.analysis.paired_tests import asked
from harness.analysis.stats import area
from harness.results.schema import Asked, Cell, Curve, Difference, LevelKind, Line, Pair, Rank, VariantFields

#: a measured removed fraction is far from the requested one beyond this
FAR = 0.05
#: curves are compared from nothing removed to this fraction
UNTIL = 0.875
#: fewer levels than this draw no curve
FEWEST_LEVELS = 3


def level_of(cell: Cell | Line) -> tuple[LevelKind, float] | None:
    """:func:`harness.analysis.paired_tests.asked` of a cell or a line."""
    return asked(cell.level_kind, cell.level, cell.requested_removed)


def is_partial(cell: Cell) -> bool:
    """Whether an overall cell is a mean over fewer subsets than the benchmark has."""
    return cell.subset is None and bool(cell.of_subsets) and cell.n_subsets < (cell.of_subsets or 0)


def off_level(cell: Cell) -> float | None:
    """Measured minus requested removed fraction; None where none was requested or nothing was measured."""
    kind, value = level_of(cell) or (None, 0.0)
    if kind != "removed" or cell.removed_mean is None:
        return None
    return float(cell.removed_mean) - float(value)


def why_unranked(cell: Cell) -> str | None:
    """Why an overall cell has no rank; None where it may have one."""
    off = off_level(cell)
    reasons = {
        "no score": cell.score is None,
        f"{cell.n_failed} not run": bool(cell.n_failed),
        "floor": cell.floor,
        f"mean of {cell.n_subsets} of {cell.of_subsets} subsets": is_partial(cell),
        f"under 10 {unit([cell])} a subset": cell.low is None,
        "removed less than asked": off is not None and off < -FAR,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def ranks(cells: Iterable[Cell], pairs: Iterable[Pair]) -> list[Rank]:
    """One row a pruned variant, benchmark and length: ``rank`` among the variants of its level and query
    mode, or why it is ``unranked``.

    A rank is one more than the number of variants that are better beyond a tie, so that variants can share one. ``tie``
    marks those that are not different from the best of their level, and the best itself where there are any.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        level = level_of(cell)
        if cell.subset is None and level is not None and cell.status != "unsupported":
            groups.setdefault((cell.benchmark, cell.length, *level, cell.query_mode), []).append(cell)
    known = {}
    for pair in pairs:
        if pair.against == "level":
            known[pair.benchmark, pair.length, pair.a, pair.b] = pair
    found = []
    for (benchmark, length, kind, value, mode), some in groups.items():
        reasons = {cell.variant: why_unranked(cell) for cell in some}
        fit = [cell for cell in some if reasons[cell.variant] is None]
        if len(fit) == 1:
            reasons[fit[0].variant] = "nothing to compare with"
            fit = []
        beats = {
            (a.variant, b.variant): _beats(known, benchmark, length, a.variant, b.variant)
            for a in fit
            for b in fit
            if a is not b
        }
        best = max(fit, key=lambda cell: cell.score or 0.0).variant if fit else None
        ties = {cell.variant for cell in fit if best not in (None, cell.variant) and not beats[best, cell.variant]}
        for cell in some:
            name = cell.variant
            ranked = reasons[name] is None
            rank = 1 + sum(beats[other.variant, name] for other in fit if other is not cell) if ranked else None
            tie = ranked and (name in ties or (name == best and bool(ties)))
            found.append(
                Rank(
                    benchmark=benchmark,
                    length=length,
                    asked=Asked(kind=kind, value=value),
                    variant=name,
                    query_mode=mode,
                    rank=rank,
                    tie=tie,
                    unranked=reasons[name],
                )
            )
    return found


def _beats(known: dict[Any, Any], benchmark: str, length: int | None, a: str, b: str) -> bool:
    """Whether a is better than b beyond a tie."""
    pair, sign = known.get((benchmark, length, a, b)), 1
    if pair is None:
        pair, sign = known.get((benchmark, length, b, a)), -1
    return pair is not None and pair.tie is False and sign * pair.difference > 0


#: what two points of one curve may differ in
_LEVEL = {"variant", "level"}


def curves(cells: Sequence[Cell]) -> list[Curve]:
    """Score over measured removed fraction, one row a benchmark, length and variant without its level.

    ``area`` is the mean score over removed 0 to 0.875, by interpolation between the points; the control is the point
    where nothing is removed. Null, with the reason in ``why``, where the points do not reach that far, a score may not
    be compared, or there are fewer than three levels.
    """
    found = []
    for benchmark, length, name, points in _curves(cells):
        control, pruned = points[0], points[1:]
        reason = next((why for cell in points if (why := _unfit(cell))), None)
        ends = max((cell.removed_mean for cell in pruned if cell.removed_mean is not None), default=0.0)
        if reason is None and len({cell.level for cell in pruned}) < FEWEST_LEVELS:
            reason = f"under {FEWEST_LEVELS} levels"
        spots = [(0.0, control.score), *((cell.removed_mean, cell.score) for cell in pruned)]
        xy = [(x, y) for x, y in spots if x is not None and y is not None]
        value = None if reason else area(xy, UNTIL)
        if value is None and reason is None:
            reason = f"measured removed ends at {ends:.3f}"
        found.append(
            Curve(
                benchmark=benchmark,
                length=length,
                curve=name,
                method=pruned[0].method,
                until=UNTIL,
                area=value,
                why=reason,
                points=[[cell.removed_mean, cell.score] for cell in pruned],
                variants=[cell.variant for cell in pruned],
            )
        )
    return found


def _curves(cells: Iterable[Cell]) -> Iterator[tuple[str, int | None, str, list[Cell]]]:
    """(benchmark, length, name, the control and the points) of each curve."""
    overall = [cell for cell in cells if cell.subset is None and cell.status != "unsupported"]
    for where, own in by_place(overall).items():
        control = next((cell for cell in own if cell.level_kind == "none"), None)
        if control is not None:
            pruned = [cell for cell in own if cell.level_kind != "none"]
            for points in group(pruned, _setting).values():
                yield *where, points[0].curve, [control, *points]


def _setting(cell: Cell) -> tuple[str, ...]:
    """What all points of one curve have in common."""
    return tuple(str(getattr(cell, name)) for name in VariantFields.model_fields if name not in _LEVEL)


def _unfit(cell: Cell) -> str | None:
    if cell.floor:
        return "floor"
    if is_partial(cell):
        return f"mean of {cell.n_subsets} of {cell.of_subsets} subsets"
    if cell.score is None or cell.n_failed:
        return f"{cell.variant}: {cell.n_failed} not run"
    return None


def unit(rows: Iterable[Cell | Difference]) -> str:
    """What a bootstrap over these cells or pairs draws."""
    return "contexts" if any(row.n_contexts not in (None, row.n) for row in rows) else "samples"
