"""Standard output for tables, and the progress of a run on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from harness.results.schema import Line

#: a pipe has no width; tables are for people, so it gets a screen's
PIPE_WIDTH = 180
#: more than any table needs
WIDEST = 100_000


def console() -> Console:
    """Standard output, wide enough for a table where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


def print_table(table: Table) -> None:
    """A table as wide as the terminal, or as its longest words need where that is more. Nothing is cut: what does not
    fit, such as an address, goes on in the next line, and the names in the first column stay whole."""
    out = console()
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = True
    out.width = max(out.width, out.measure(table, options=out.options.update(width=WIDEST)).minimum)
    out.print(table)


@contextmanager
def progress(done: int, total: int) -> Iterator[Any]:
    """A bar on standard error with answers done, time left, and the running score of control and variants."""
    bar = Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[score]}"),
        console=Console(stderr=True),
    )
    scores: dict[bool, list[float]] = {True: [], False: []}

    def advance(line: Line) -> None:
        if line.score is not None:
            scores[line.level_kind == "none"].append(line.score)
        named = (("full", scores[True]), ("pruned", scores[False]))
        text = "  ".join(f"{name} {fmean(some):.1f}" for name, some in named if some)
        bar.update(task, advance=1, score=text)

    with bar:
        task = bar.add_task("answers", total=total, completed=done, score="")
        yield advance
