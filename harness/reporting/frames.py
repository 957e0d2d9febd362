"""Runs as pandas DataFrames and as a chart, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import altair as alt
import pandas as pd

from harness.analysis.boards import Board, boards
from harness.analysis.run_reader import Reading, find
from harness.reporting.render import cell_rows


@dataclass(frozen=True)
class Results:
    """Some runs: their cells and lines as tables. ``notes`` says what could not be read, or was not run."""

    runs: Sequence[Reading]
    notes: Sequence[str] = ()

    @cached_property
    def boards(self) -> list[Board]:
        """The runs put beside each other, as far as they may be compared."""
        return boards(self.runs)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row per variant, benchmark, length and subset (None: the mean over subsets), with the columns of ``report
        --format csv``: score and interval, removed fraction, paired difference from the full cache, rank."""
        return pd.DataFrame([row for board in self.boards for row in cell_rows(board)])

    @cached_property
    def lines(self) -> pd.DataFrame:
        """One row per sample, variant and rollout, with the fields of ``samples.jsonl`` and the name of the run."""
        return pd.DataFrame([{"run": run.name, **line.model_dump()} for run in self.runs for line in run.lines])

    def plot(self) -> alt.FacetChart:
        """Mean score against the removed fraction: one curve per method and setting, one panel per model, benchmark and
        length, the full cache at 0. Bars are 95 % intervals."""
        points = pd.DataFrame([point for board in self.boards for point in _points(board)])
        removed = alt.X("removed:Q", title="KV pairs removed", axis=alt.Axis(format="%"))
        base = alt.Chart().encode(x=removed, color=alt.Color("curve:N", title=None))
        line = base.mark_line(point=True).encode(y=alt.Y("score:Q"), tooltip=["variant", "score", "removed"])
        interval = base.mark_rule().encode(y="low:Q", y2="high:Q")
        return alt.layer(line, interval, data=points).facet(facet=alt.Facet("board:N", title=None), columns=2)


def _points(board: Board) -> list[dict[str, object]]:
    run = [cell for cell in board.cells if cell.subset is None and cell.score is not None]
    return [
        {
            "board": board.title,
            "curve": cell.curve,
            "variant": cell.variant,
            "removed": cell.removed_mean,
            "score": cell.score,
            "low": cell.low,
            "high": cell.high,
        }
        for cell in run
    ]


def load(*folders: str | Path) -> Results:
    """The runs in some folders (default: ``results``). A damaged one is told of in ``notes``, unless it was named."""
    found = find(*map(Path, folders or ("results",)))
    return Results(found.runs, found.notes)


def plot(results: Results) -> alt.FacetChart:
    """:meth:`Results.plot`."""
    return results.plot()
