"""Lines grouped once: by place, which is a benchmark at a length, and there by variant."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from harness.results.schema import Line

#: benchmark and length
Place = tuple[str, int | None]


class Placed(Protocol):
    """What belongs to a benchmark at a length: lines, items, cells and what is derived from them."""

    @property
    def benchmark(self) -> str: ...
    @property
    def length(self) -> int | None: ...


Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)
PlacedRow = TypeVar("PlacedRow", bound=Placed)


@dataclass(frozen=True)
class PlaceLines:
    """All lines of a place, in their order."""

    lines: list[Line]

    @cached_property
    def variants(self) -> dict[str, list[Line]]:
        """The lines of each variant; variants in the order in which they first appear."""
        return group(self.lines, lambda line: line.variant)

    @property
    def control(self) -> list[Line]:
        """The lines of the full cache; none where it was not run."""
        return next((own for own in self.variants.values() if own[0].level_kind == "none"), [])


def grouped(lines: Iterable[Line]) -> dict[Place, PlaceLines]:
    """The lines of each place; places in the order in which they first appear."""
    return {place: PlaceLines(own) for place, own in by_place(lines).items()}


def by_place(rows: Iterable[PlacedRow]) -> dict[Place, list[PlacedRow]]:
    return group(rows, lambda row: (row.benchmark, row.length))


def by_subset(lines: Iterable[Line]) -> dict[str, list[Line]]:
    return group(lines, lambda line: line.subset)


def group(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by their key, both in the order in which they first appear."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
