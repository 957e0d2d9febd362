"""As many rows of a batch at once as memory has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from harness.engine.context import out_of_memory

Row = TypeVar("Row")
Result = TypeVar("Result")


@dataclass
class AtOnce:
    """How many rows run together: all, or what fitted after memory had run out; the next question begins with it."""

    rows: int | None = None


def in_groups(run: Callable[[Sequence[Row]], list[Result]], rows: Sequence[Row], at_once: AtOnce) -> list[Result]:
    """``run``'s results of all rows. When memory runs out a group starts again with half of its rows; one row that does
    not fit raises what the allocator raised."""
    results: list[Result] = []
    before = at_once.rows
    while len(results) < len(rows):
        group = rows[len(results) :][: at_once.rows]
        try:
            results += run(group)
            continue
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            if len(group) == 1:
                at_once.rows = before  # this question fits in no way, which says nothing about the next
                raise
        at_once.rows = (len(group) + 1) // 2  # here the error, and with it the batch, is gone
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return results
