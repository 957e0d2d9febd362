"""``report``: folders of runs in one of the formats, printed or written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.base import nearest_first
from harness.analysis.boards import boards
from harness.analysis.run_reader import find
from harness.errors import HarnessError
from harness.files import write_atomically
from harness.reporting import render
from harness.reporting.board_tables import Sheet
from harness.reporting.run_table import console


def report(results: Sequence[Path], form: str, out: Path | None) -> None:
    """Print or write the report of the runs and all runs in the folders ``results``."""
    if form not in render.FORMATS:
        known = ", ".join(nearest_first(form, render.FORMATS))
        raise HarnessError(f"unknown --format {form!r}; known, nearest first: {known}")
    found = find(*results)
    text = render.render(boards(found.runs), found.notes, form, None if out else _width())
    if out is None:
        sys.stdout.write(text)
    else:
        try:
            write_atomically(out, text)
        except OSError as error:
            raise HarnessError(f"--out {out} cannot be written to: {error}") from error
    if form == "csv":  # there is no room for them in the rows
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)


def show(sheets: Sequence[Sheet]) -> None:
    """Print sheets as tables."""
    sys.stdout.write(render.to_text(sheets, [], _width()))


def _width() -> int | None:
    return console().width if sys.stdout.isatty() else None
