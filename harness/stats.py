"""Intervals of means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: a bootstrap over fewer samples than this says nothing
FEWEST = 10
DRAWS = 10_000


class Interval(NamedTuple):
    low: float
    high: float


def mean_interval(strata: Sequence[Sequence[float]], seed: int = 0, level: float = 0.95) -> Interval | None:
    """Percentile bootstrap interval of the unweighted mean of the strata's means, resampled within each stratum.

    None where a stratum has fewer than ten samples. Efron & Tibshirani, "An Introduction to the Bootstrap", chapter 13.
    """
    if not strata or min(map(len, strata)) < FEWEST:
        return None
    random = np.random.default_rng(seed)
    means = np.zeros(DRAWS)
    for scores in strata:
        values = np.asarray(scores, dtype=float)
        means += values[random.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means / len(strata), [tail, 1 - tail])
    return Interval(float(low), float(high))
