"""Statistics: intervals of means and of paired differences, paired tests, and their correction for many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: a bootstrap over fewer samples than this says nothing
FEWEST = 10
DRAWS = 10_000
#: up to so many samples that differ, a permutation test goes through all signs
EXACT = 20
#: signs drawn beyond that
PERMUTATIONS = 100_000
#: rows of signs at a time; a matter of memory alone
_BLOCK = 2_000
#: sums of the same differences in another order may differ by this part of their size
_ROUNDING = 1e-9

Matrix = NDArray[np.float64]


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


def mean_intervals(strata: Sequence[Matrix], seed: int = 0, level: float = 0.95) -> list[Interval | None]:
    """:func:`mean_interval` of many quantities of the same samples at once, with the same draws.

    strata   for each stratum ``[samples, quantities]``
    """
    count = strata[0].shape[1] if strata else 0
    if not strata or min(map(len, strata)) < FEWEST:
        return [None] * count
    random = np.random.default_rng(seed)
    means = np.zeros((DRAWS, count))
    for values in strata:
        size = len(values)
        picked = random.integers(size, size=(DRAWS, size)) + size * np.arange(DRAWS)[:, None]
        times = np.bincount(picked.ravel(), minlength=DRAWS * size).reshape(DRAWS, size)
        means += times.astype(float) @ values / size
    tail = (1 - level) / 2
    low, high = np.quantile(means / len(strata), [tail, 1 - tail], axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


class Tested(NamedTuple):
    """A two-sided p-value, and whether it is exact or drawn."""

    p: float
    exact: bool


def sign_flips(differences: Matrix, seed: int = 0) -> list[Tested]:
    """Paired permutation tests, one a column: two-sided p of the sum of the column's entries, were each sample's sign a
    coin's. For a mean of strata's means each entry comes weighted.

    differences   ``[samples, tests]``

    A sample without a difference has no sign to flip. Up to twenty others all signs are gone through; else 100,000 are
    drawn, the same for all columns, and the observed one counts as one more, so that no p is 0 (Phipson & Smyth 2010,
    "Permutation p-values should never be zero", equation 2). Fisher, "The Design of Experiments", section 21.
    """
    found: list[Tested | None] = [None] * differences.shape[1]
    drawn = []
    for column in range(differences.shape[1]):
        values = differences[:, column]
        values = values[values != 0]
        if len(values) <= EXACT:
            found[column] = Tested(_all_signs(values), True)
        else:
            drawn.append(column)
    for column, p in zip(drawn, _drawn_signs(differences[:, drawn], seed) if drawn else (), strict=True):
        found[column] = Tested(p, False)
    return [one for one in found if one is not None]


def _all_signs(values: Matrix) -> float:
    """The share of signs whose sum is as far out as the observed one. The sums of either half meet in a sorted list,
    so that 2^20 signs take no 2^20 sums."""
    if len(values) == 0:
        return 1.0
    least, half = _least(values), len(values) // 2
    first, second = _signed_sums(values[:half]), np.sort(_signed_sums(values[half:]))
    above = len(second) - np.searchsorted(second, least - first, side="left")
    below = np.searchsorted(second, -least - first, side="right")
    return min(1.0, float((above + below).sum()) / 2.0 ** len(values))


def _signed_sums(values: Matrix) -> Matrix:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _drawn_signs(differences: Matrix, seed: int) -> list[float]:
    random = np.random.default_rng(seed)
    least = np.array([_least(column) for column in differences.T])
    beyond = np.zeros(differences.shape[1], dtype=np.int64)
    for _ in range(PERMUTATIONS // _BLOCK):
        signs = random.integers(2, size=(_BLOCK, len(differences)), dtype=np.int8) * 2.0 - 1.0
        beyond += (np.abs(signs @ differences) >= least).sum(axis=0)
    return [(1 + int(count)) / (1 + PERMUTATIONS) for count in beyond]


def _least(values: Matrix) -> float:
    """What a sum must reach to be as far out as the observed one; equal sums must not miss it by rounding."""
    return float(abs(values.sum()) - _ROUNDING * np.abs(values).sum())


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p of McNemar's test: of the samples that just one of two got right, each is a fair coin's throw.

    McNemar 1947; exact form: twice the binomial tail, at most 1.
    """
    total, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(total, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / 2**total)


def holm(values: Sequence[float]) -> list[float]:
    """p-values of one table, adjusted for their number, in the order given. Holm 1979, "A simple sequentially
    rejective multiple test procedure"."""
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = largest
    return adjusted


def area(points: Sequence[tuple[float, float]], until: float) -> float | None:
    """Mean height of the line through ``(x, y)`` points from x = 0 to ``until``: area by the trapezoid rule over width.

    Between points by interpolation alone; None where they do not reach from 0 to ``until``. Points of one x count as
    one, at their mean.
    """
    heights: dict[float, list[float]] = {}
    for x, y in points:
        heights.setdefault(x, []).append(y)
    xs = np.array(sorted(heights))
    if len(xs) == 0 or xs[0] > 0 or xs[-1] < until:
        return None
    ys = np.array([np.mean(heights[x]) for x in xs])
    inner: Any = xs[(xs > 0) & (xs < until)]
    grid = np.concatenate([[0.0], inner, [until]])
    return float(np.trapezoid(np.interp(grid, xs, ys), grid) / until)
