"""Levels of cells, and the names of variants and levels, as every page has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.analysis.ranking import level_of
from harness.results.schema import Cell, LevelKind, Line, level_text

Level = tuple[LevelKind, float]
#: the name of the control, and the choice of all levels
CONTROL, EVERY = "full cache", "all"


def number(value: float) -> str:
    """With all its digits, as labels have levels."""
    return level_text("removed", value)


def exact(level: Level | None) -> str:
    """A level as columns have it: ``0.5``, ``keep 64``, ``tau -4``; no two share a text."""
    return level_text(*level).replace("=", " ") if level else ""


def level_name(level: Level | None) -> str:
    """A level in words: ``removed 0.5``, ``keep 64``, ``tau -4``; the control's is :data:`CONTROL`."""
    if level is None:
        return CONTROL
    return ("removed " if level[0] == "removed" else "") + exact(level)


def levels(cells: Iterable[Cell]) -> list[Level]:
    """The levels of overall cells that were run: removed fractions first, each kind in order."""
    run = [cell for cell in cells if cell.subset is None and cell.status != "unsupported"]
    found = {level for cell in run if (level := level_of(cell)) is not None}
    return sorted(found, key=lambda level: (level[0] != "removed", level[0], level[1]))


def row_names(cells: Iterable[Cell | Line], by_level: bool = True) -> dict[str, str]:
    """The name of each variant in a table: its curve's; its own where two of a curve are in one table, or with
    ``by_level`` at one level, as two thresholds chosen for the same removed fraction are. The control's is
    :data:`CONTROL`."""
    known = {cell.variant: (cell.curve, level_of(cell)) for cell in cells}
    count = Counter((name, level if by_level else None) for name, level in known.values())
    return {
        variant: CONTROL if level is None else variant if count[name, level if by_level else None] > 1 else name
        for variant, (name, level) in known.items()
    }


def control_of(cells: Sequence[Cell]) -> Cell | None:
    """The control's overall cell; None where it was not run."""
    return next((cell for cell in cells if cell.subset is None and cell.level_kind == "none"), None)


def at_level(overall: Iterable[Cell], level: str) -> list[Cell]:
    """The control and the cells of a level by its name, or with :data:`EVERY` all cells level by level."""
    cells = list(overall)
    order = [None, *levels(cells)]
    cells.sort(key=lambda cell: order.index(level_of(cell)))
    return [cell for cell in cells if level == EVERY or level_of(cell) is None or level_name(level_of(cell)) == level]


def one_level(names: Sequence[str], level: str) -> str:
    """The level that was chosen, or one of ``names`` where all of them were."""
    return next((name for name in (level, "removed 0.5") if name in names), names[0])
