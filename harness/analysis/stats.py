"""Statistics: intervals of means and of paired differences, paired tests, and their correction for many."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
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


def mean_interval(
    strata: Sequence[Sequence[float]],
    seed: int = 0,
    level: float = 0.95,
    units: Sequence[Sequence[Hashable]] | None = None,
) -> Interval | None:
    """Percentile bootstrap interval of the unweighted mean of the strata's means, resampled within each stratum.

    units    for each value what it belongs to; values of one unit are drawn together. None: each to itself

    Strata that have a unit in common are resampled as one. A stratum's mean is that of the values drawn, whose number
    may differ; draws that leave a stratum without a value are skipped. None where one has fewer than ten units.
    Efron & Tibshirani, "An Introduction to the Bootstrap", chapter 13; whole units: Davison & Hinkley, "Bootstrap
    Methods and their Application", section 3.8.
    """
    if not _enough(strata, units):
        return None
    random = np.random.default_rng(seed)
    means = np.zeros(DRAWS)
    for size, members in _blocks(strata, units):
        picked = random.integers(size, size=(DRAWS, size))
        for own in members:
            counts = own.counts[picked].sum(axis=1) if own.several else size
            with np.errstate(invalid="ignore"):
                means += own.sums[:, 0][picked].sum(axis=1) / counts
    return _percentiles(means[:, None] / len(strata), level)[0]


def mean_intervals(
    strata: Sequence[Matrix],
    seed: int = 0,
    level: float = 0.95,
    units: Sequence[Sequence[Hashable]] | None = None,
) -> list[Interval | None]:
    """:func:`mean_interval` of many quantities of the same samples at once, with the same draws.

    strata   for each stratum ``[samples, quantities]``
    """
    count = strata[0].shape[1] if strata else 0
    if not _enough(strata, units):
        return [None] * count
    random = np.random.default_rng(seed)
    means = np.zeros((DRAWS, count))
    for size, members in _blocks(strata, units):
        picked = random.integers(size, size=(DRAWS, size)) + size * np.arange(DRAWS)[:, None]
        times = np.bincount(picked.ravel(), minlength=DRAWS * size).reshape(DRAWS, size).astype(float)
        for own in members:
            counts = (times @ own.counts)[:, None] if own.several else size
            with np.errstate(invalid="ignore"):
                means += times @ own.sums / counts
    return [*_percentiles(means / len(strata), level)]


def _enough(strata: Sequence[Any], units: Sequence[Sequence[Hashable]] | None) -> bool:
    return bool(strata) and min(map(len, strata) if units is None else (len(set(own)) for own in units)) >= FEWEST


def _percentiles(means: Matrix, level: float) -> list[Interval]:
    """An interval a column, of the draws that left no stratum empty."""
    tail = (1 - level) / 2
    whole = means[~np.isnan(means).any(axis=1)]
    low, high = np.quantile(whole, [tail, 1 - tail], axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


class _Stratum(NamedTuple):
    """A stratum by the units of its block: ``sums`` of the values ``[units, quantities]`` and their ``counts``; whether
    any unit has another number of values than one."""

    sums: Matrix
    counts: Matrix
    several: bool


def _blocks(strata: Sequence[Any], units: Sequence[Sequence[Hashable]] | None) -> Iterator[tuple[int, list[_Stratum]]]:
    """Strata that are resampled together, with how many units they have."""
    tables = [np.asarray(values, dtype=float).reshape(len(values), -1) for values in strata]
    if units is None:
        units = [[(stratum, place) for place in range(len(table))] for stratum, table in enumerate(tables)]
    for members in _joined(units):
        places = {
            unit: place for place, unit in enumerate(dict.fromkeys(u for stratum in members for u in units[stratum]))
        }
        found = []
        for stratum in members:
            at = [places[unit] for unit in units[stratum]]
            sums, counts = np.zeros((len(places), tables[stratum].shape[1])), np.zeros(len(places))
            np.add.at(sums, at, tables[stratum])
            np.add.at(counts, at, 1.0)
            found.append(_Stratum(sums, counts, bool((counts != 1).any())))
        yield len(places), found


def _joined(units: Sequence[Sequence[Hashable]]) -> list[list[int]]:
    """The strata in groups that have no unit in common, in the order of their first stratum."""
    groups: list[tuple[set[Hashable], list[int]]] = []
    for stratum, own in enumerate(units):
        known, members = set(own), [stratum]
        apart = []
        for group in groups:
            if known.isdisjoint(group[0]):
                apart.append(group)
            else:
                known, members = known | group[0], [*group[1], *members]
        groups = [*apart, (known, sorted(members))]
    return sorted(members for _, members in groups)


def unit_sums(values: Matrix, units: Sequence[Hashable]) -> Matrix:
    """The sum of each unit's rows, in the order in which units first appear."""
    places = {unit: place for place, unit in enumerate(dict.fromkeys(units))}
    sums = np.zeros((len(places), *values.shape[1:]))
    np.add.at(sums, [places[unit] for unit in units], values)
    return sums


class Tested(NamedTuple):
    """A two-sided p-value, and whether it is exact or drawn."""

    p: float
    exact: bool


def sign_flips(differences: Matrix, seed: int = 0) -> list[Tested]:
    """Paired permutation tests, one a column: two-sided p of the sum of the column's entries, were each sample's sign a
    coin's. For a mean of strata's means each entry comes weighted.

    differences   ``[samples, tests]``; samples that are not independent come as their sum (:func:`unit_sums`), one sign
                  for all of them (Winkler et al. 2015, "Multi-level block permutation")

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
