"""Metrics that a benchmark declares beside its score, such as the KL of fidelity, over what was removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from harness.analysis.ranking import level_of
from harness.results.schema import Cell, Metric

#: drawn like a metric beside the others
SCORE = Metric(name="score", title="score", description="score")
COLUMNS = ["variant", "name", "method", "removed", "metric", "value", "low", "high", "n"]


def shown_metrics(cells: Sequence[Cell], declared: Iterable[Metric]) -> list[Metric]:
    """Those that a pruned variant has, and the score; empty where it has no metric."""
    found = [metric for metric in declared if any(metric.name in cell.metrics for cell in cells if level_of(cell))]
    return [*found, SCORE] if found else []


def metric_table(cells: Iterable[Cell], metrics: Sequence[Metric]) -> pd.DataFrame:
    """A row per pruned variant and metric; ``low`` and ``high`` are the interval that the cell has for it, if any."""
    found = []
    for cell in cells:
        if cell.subset is not None or level_of(cell) is None or cell.removed_mean is None:
            continue
        for metric in metrics:
            value, (low, high) = _value(cell, metric)
            if value is not None:
                place = (cell.variant, cell.curve, cell.method, cell.removed_mean)
                found.append((*place, metric.name, value, low, high, cell.n))
    return pd.DataFrame(found, columns=COLUMNS).astype({"value": float, "low": float, "high": float})


def _value(cell: Cell, metric: Metric) -> tuple[float | None, Sequence[float | None]]:
    """A cell's figure, and its interval."""
    if metric is SCORE:
        return cell.score, (cell.low, cell.high)
    return cell.metrics.get(metric.name), cell.metric_intervals.get(metric.name, (None, None))
