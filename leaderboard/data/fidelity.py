"""Fidelity: how far the predictions of a pruned cache are from the full cache's, over what was removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from harness.analysis.ranking import level_of
from harness.results.schema import Cell


class Figure(NamedTuple):
    """A metric of a cell, its title, and whether its axis is logarithmic."""

    metric: str
    title: str
    log: bool


#: the score is 100 x top-1 agreement, with an interval of its own
TOP1 = Figure("top1", "top-1 agreement, %", False)
FIGURES = (
    Figure("kl_mean", "KL(full ‖ pruned) per token, mean, nats", True),
    Figure("kl_p95", "KL per token, 95th percentile, nats", True),
    TOP1,
    Figure("ppl_ratio", "perplexity, times the full cache's", True),
)
COLUMNS = ["variant", "name", "method", "removed", "metric", "value", "low", "high", "n"]


def has_fidelity(cells: Iterable[Cell]) -> bool:
    return any("kl_mean" in cell.metrics for cell in cells)


def fidelity(cells: Iterable[Cell]) -> pd.DataFrame:
    """A row per pruned variant and figure; ``low`` and ``high`` are the interval that the cell has for it, if any."""
    found = []
    for cell in cells:
        if cell.subset is not None or level_of(cell) is None or cell.removed_mean is None:
            continue
        place = (cell.variant, cell.curve, cell.method, cell.removed_mean)
        for figure in FIGURES:
            value, (low, high) = _value(cell, figure)
            if value is not None:
                found.append((*place, figure.metric, value, low, high, cell.n))
    return pd.DataFrame(found, columns=COLUMNS).astype({"value": float, "low": float, "high": float})


def _value(cell: Cell, figure: Figure) -> tuple[float | None, Sequence[float | None]]:
    """A cell's figure, and its interval."""
    if figure is TOP1:
        return cell.score, (cell.low, cell.high)
    return cell.metrics.get(figure.metric), cell.metric_intervals.get(figure.metric, (None, None))
