"""A board as the rows of its table: what each curve scored, its rank at one level, and what must be known beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from harness.analysis.boards import Board
from harness.analysis.ranking import is_partial, level_of
from harness.results.schema import Cell
from leaderboard.data.levels import Level, row_names

#: removed fractions at which all curves are read off
AT = (0.5, 0.75)
#: a measured fraction so near counts as the one looked for
NEAR = 0.005


class ReadOff(NamedTuple):
    """A curve's score at a removed fraction: measured there, or interpolated between two measured levels."""

    score: float
    measured: bool

    def __str__(self) -> str:
        return f"{self.score:.1f}" if self.measured else f"≈ {self.score:.1f}"


@dataclass(frozen=True)
class Standing:
    """One row: a curve, its cell at the level that is ranked (None: it has none there), and the rank among those.

    name      the curve's; the cell's own where the curve has several at that level
    why       why it has no rank, where a level is ranked
    read_off  score at each of :data:`AT`; None where its measured levels do not reach, or nothing may be claimed
    area      mean score over removed 0 to 0.875, with ``no_area``, why it has none
    """

    name: str
    curve: str
    method: str
    cells: tuple[Cell, ...]
    cell: Cell | None
    rank: int | None
    tie: bool
    why: str | None
    read_off: dict[float, ReadOff | None]
    area: float | None
    no_area: str | None
    remarks: list[str] = field(default_factory=list)

    @property
    def floor(self) -> bool:
        return any(cell.floor for cell in self.cells)

    @property
    def overall(self) -> float | None:
        """One figure to order curves by where they have no rank: the mean of what is read off, or the area."""
        known = [one.score for one in self.read_off.values() if one is not None]
        return fmean(known) if known else self.area


def read_off(points: Sequence[tuple[float, float]], removed: float, log: bool = False) -> ReadOff | None:
    """The score at a removed fraction, from measured ``(removed, score)`` points; None beyond them. ``log``: on the
    straight line between the logarithms of two scores, where both are over 0."""
    heights: dict[float, list[float]] = {}
    for x, y in points:
        heights.setdefault(x, []).append(y)
    known = sorted((x, fmean(ys)) for x, ys in heights.items())
    near = min(known, key=lambda point: abs(point[0] - removed), default=None)
    if near is not None and abs(near[0] - removed) <= NEAR:
        return ReadOff(near[1], True)
    for (x0, y0), (x1, y1) in pairwise(known):
        if x0 < removed < x1:
            part = (removed - x0) / (x1 - x0)
            straight = not log or min(y0, y1) <= 0
            return ReadOff(y0 + (y1 - y0) * part if straight else y0 * (y1 / y0) ** part, False)
    return None


#: what a remark says of an alarm on a variant; the alarm itself stands below the table
ALARMS = {
    "beats_control": "beats the full cache",
    "failed": "not all ran",
    "off_level": "removed over 0.05 off",
}


def standings(
    board: Board,
    level: Level | None,
    shows: Callable[[Cell], bool] = lambda cell: True,
    stale: Mapping[str, str] | None = None,
) -> list[Standing]:
    """The rows of a board, best first: by rank, then those without, by score.

    Ranks are those of all that ran, whatever ``shows`` leaves out; curves pruned with the question in view come after
    the others, as they are ranked apart. ``stale`` has a remark by method.
    """
    ranked = {row.variant: row for row in board.ranks}
    areas = {variant: curve for curve in board.curves for variant in curve.variants}
    alarms: dict[str, list[str]] = {}
    for alarm in board.alarms:
        alarms.setdefault(str(alarm.variant), []).append(ALARMS.get(alarm.kind, f"{alarm.kind} alarm"))
    found = []
    for cells in _curves(board, shows):
        first = cells[0]
        curve = areas.get(first.variant)
        read = {removed: _claimed(cells, removed) for removed in AT}
        at_level = [cell for cell in cells if level is not None and level_of(cell) == level]
        names = row_names(at_level)
        shown: Sequence[Cell | None] = at_level or [None]
        for here in shown:
            rank = ranked.get(here.variant) if here else None
            told = _alarmed(cells, here, alarms)
            told += [stale[first.method]] if stale and first.method in stale else []
            found.append(
                Standing(
                    name=names[here.variant] if here else first.curve,
                    curve=first.curve,
                    method=first.method,
                    cells=tuple(cells),
                    cell=here,
                    rank=rank.rank if rank else None,
                    tie=bool(rank and rank.tie),
                    why=rank.unranked if rank else None,
                    read_off=read,
                    area=curve.area if curve else None,
                    no_area=curve.why if curve else None,
                    remarks=[*_remarks(cells, here), *told],
                )
            )
    return sorted(found, key=_place)


def _curves(board: Board, shows: Callable[[Cell], bool]) -> list[list[Cell]]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in board.cells:
        if cell.subset is None and cell.level_kind != "none" and shows(cell):
            unsupported = cell.variant if cell.status == "unsupported" else ""
            groups.setdefault((cell.curve, unsupported), []).append(cell)
    return list(groups.values())


def _claimed(cells: Sequence[Cell], removed: float) -> ReadOff | None:
    """Nothing is read off a curve with a cell at the floor, a mean of some subsets, or samples that were not run."""
    if any(cell.floor or is_partial(cell) or cell.n_failed for cell in cells):
        return None
    known = [(c.removed_mean, c.score) for c in cells if c.removed_mean is not None and c.score is not None]
    return read_off(known, removed)


def _remarks(cells: Sequence[Cell], here: Cell | None) -> list[str]:
    found = [cells[0].note] if cells[0].note else []
    found += ["floor"] if any(cell.floor for cell in cells) else []
    bound = [cell for cell in cells if cell.bound_by]
    if bound:
        found.append("bound by protection" + ("" if here in bound or len(bound) == len(cells) else " at some levels"))
    failed = sum(cell.n_failed for cell in cells)
    return found + ([f"{failed} not run"] if failed else [])


def _alarmed(cells: Sequence[Cell], here: Cell | None, alarms: Mapping[str, list[str]]) -> list[str]:
    """Each alarm on a curve once: as it is where it is on the row's own level, else with word that it is not."""
    own = set(alarms.get(here.variant, [])) if here else set()
    every = dict.fromkeys(text for cell in cells for text in alarms.get(cell.variant, []))
    return [text if text in own else f"{text} at some levels" for text in every]


def _place(row: Standing) -> tuple[Any, ...]:
    mode = row.cells[0].query_mode
    apart = mode != "agnostic", mode
    score = row.cell.score if row.cell else None
    shown = row.overall if score is None else score
    more = -(row.overall or 0.0), row.name
    return *apart, row.rank is None, row.rank or 0, row.cell is None, shown is None, -(shown or 0.0), *more
