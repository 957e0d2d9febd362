"""Memory and speed that runs have measured, and nothing else: no figure here is worked out from a removed fraction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from harness.analysis.summary import removed_of
from harness.results.schema import AVERAGED, Line
from leaderboard.data.levels import CONTROL

COLUMNS = ["curve", "method", "variant", "removed", "value", "low", "high", "samples"]


class Figure(NamedTuple):
    """A figure that a line may have: ``physical_bytes`` is its own field, the others are in its ``metrics``."""

    name: str
    title: str
    axis: str
    scale: float
    of: Callable[[Line], float | None]


def _metric(name: str) -> Callable[[Line], float | None]:
    return lambda line: line.metrics.get(name)


FIGURES = (
    Figure("physical_bytes", "Physical cache", "MiB of keys and values", 2**20, lambda line: line.physical_bytes),
    Figure("peak_bytes", "Peak memory", "MiB at the peak", 2**20, _metric("peak_bytes")),
    Figure("ttft_seconds", "Time to first token", "seconds", 1, _metric("ttft_seconds")),
    Figure("tokens_per_second", "Tokens per second", "new tokens a second", 1, _metric("tokens_per_second")),
)


def measured(lines: Iterable[Line], figure: Figure) -> pd.DataFrame:
    """A row a variant that has the figure: mean, least and largest over its answers, and the mean removed fraction.
    Variants without it have no row."""
    by_variant: dict[str, list[tuple[float, float, Line]]] = {}
    for line in lines:
        value, removed = figure.of(line), removed_of(line)
        if line.status in AVERAGED and value is not None and removed is not None:
            by_variant.setdefault(line.variant, []).append((value / figure.scale, removed, line))
    rows = []
    for variant, some in by_variant.items():
        values, line = [value for value, _, _ in some], some[0][2]
        curve = CONTROL if line.level_kind == "none" else line.curve
        removed = fmean(fraction for _, fraction, _ in some)
        samples = len({one.sample_id for _, _, one in some})
        rows.append([curve, line.method, variant, removed, fmean(values), min(values), max(values), samples])
    return pd.DataFrame(rows, columns=COLUMNS)
