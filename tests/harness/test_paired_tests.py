"""Paired tests, their correction, areas: against enumeration, second implementations and published values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.analysis.stats import EXACT, PERMUTATIONS, area, holm, mcnemar, mean_interval, mean_intervals, sign_flips


def one(values: list[float], seed: int = 0) -> tuple[float, bool]:
    (found,) = sign_flips(np.array(values, dtype=float)[:, None], seed)
    return found


def enumerated(values: list[float]) -> float:
    observed = abs(sum(values))
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in _signs(len(values))]
    return sum(total >= observed - 1e-9 for total in sums) / len(sums)


def _signs(count: int) -> itertools.product:
    return itertools.product((1, -1), repeat=count)


@pytest.mark.parametrize("count", range(1, 13))
def test_up_to_twelve_samples_the_p_is_that_of_all_signs(count: int) -> None:
    random = np.random.default_rng(count)
    for values in (random.normal(1, 2, count), random.choice([0.0, 50.0, -50.0, 100.0], count)):
        p, exact = one(list(values))
        assert (p, exact) == (pytest.approx(enumerated(list(values)), abs=1e-15), True)


@pytest.mark.parametrize("count", [5, 9, 13])
def test_the_p_is_that_of_scipys_permutation_test(count: int) -> None:
    values = np.random.default_rng(count).normal(0.7, 1, count)
    other = scipy_stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert one(list(values))[0] == pytest.approx(other.pvalue, abs=1e-12)


def test_fishers_own_example() -> None:
    """Darwin's maize, "The Design of Experiments", section 21: 863 of 32,768 sums reach 314 on either side."""
    eighths = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    assert sum(eighths) == 314
    assert one(eighths) == (2 * 863 / 32_768, True)


def test_twenty_samples_are_gone_through_and_more_are_drawn() -> None:
    values = [float(i) for i in range(1, EXACT + 1)]
    assert one(values) == (2.0 / 2**EXACT, True)  # all of one sign: no other sum is as far out but its mirror image
    p, exact = one([*values, 21.0])
    assert (exact, p) == (False, 1 / (PERMUTATIONS + 1))  # never 0


def test_samples_without_a_difference_change_nothing() -> None:
    values = [3.0, 1.0, -2.0, 5.0]
    assert one([0.0] * 40 + values) == one(values)
    assert one([0.0, 0.0]) == (1.0, True)


def test_a_drawn_p_is_near_the_exact_one_and_the_same_again() -> None:
    values = list(np.random.default_rng(1).normal(0.4, 1, 22))
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    exact = float((np.abs(sums) >= abs(sum(values)) - 1e-9).mean())
    p, is_exact = one(values)
    assert not is_exact
    assert p == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / PERMUTATIONS))
    assert one(values) == (p, False)
    assert one(values, seed=3)[0] != p


def test_columns_are_tested_as_if_alone() -> None:
    random = np.random.default_rng(2)
    matrix = random.normal(0.2, 1, (30, 3))
    matrix[8:, 0] = 0.0  # this one is exact, the others are drawn
    together = sign_flips(matrix)
    assert [found.exact for found in together] == [True, False, False]
    for column, found in enumerate(together):
        assert one(list(matrix[:, column])) == found


def test_under_the_null_a_p_is_seldom_small() -> None:
    random = np.random.default_rng(4)
    small = sum(one(list(random.normal(0, 1, 12)))[0] <= 0.05 for _ in range(400))
    assert 6 <= small <= 36  # 20 expected


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 0), (5, 0), (10, 2), (3, 3), (4, 5), (60, 41), (0, 40)])
def test_mcnemar_is_the_two_sided_binomial_test(better: int, worse: int) -> None:
    total = better + worse
    other = scipy_stats.binomtest(better, total).pvalue if total else 1.0
    assert mcnemar(better, worse) == pytest.approx(other, rel=1e-12)
    assert mcnemar(better, worse) == mcnemar(worse, better)


def test_mcnemar_by_hand() -> None:
    assert mcnemar(1, 9) == 2 * (1 + 10) / 1024


@pytest.mark.parametrize(("better", "worse"), [(6, 1), (9, 5), (12, 8), (4, 4)])
def test_mcnemar_is_the_permutation_test_of_right_and_wrong(better: int, worse: int) -> None:
    assert one([100.0] * better + [-100.0] * worse + [0.0] * 9)[0] == pytest.approx(mcnemar(better, worse), rel=1e-12)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_intervals_of_many_are_those_of_each() -> None:
    random = np.random.default_rng(8)
    strata = [random.normal(50, 20, (size, 4)) for size in (10, 17, 30)]
    for column, interval in enumerate(mean_intervals(strata, seed=5)):
        alone = mean_interval([stratum[:, column] for stratum in strata], seed=5)
        assert interval == pytest.approx(alone, abs=1e-9)
    assert mean_intervals([strata[0], strata[1][:9]]) == [None] * 4
    assert mean_intervals([]) == []


def test_a_paired_interval_equals_that_of_an_independent_bootstrap() -> None:
    random = np.random.default_rng(9)
    first, second = random.normal(60, 15, 50), random.normal(55, 15, 50)
    (interval,) = mean_intervals([(first - second)[:, None]])
    other = scipy_stats.bootstrap(
        (first, second),
        lambda a, b, axis: (a - b).mean(axis=axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        random_state=1,
    ).confidence_interval
    assert interval == pytest.approx((other.low, other.high), abs=0.5)


def test_an_area_by_hand() -> None:
    # trapezoids 100..60 over 0.5 and 60..20 over 0.25: (40 + 10) / 0.75
    assert area([(0.0, 100.0), (0.5, 60.0), (0.75, 20.0)], 0.75) == pytest.approx(50 / 0.75)
    assert area([(0.75, 20.0), (0.0, 100.0), (0.5, 60.0)], 0.75) == pytest.approx(50 / 0.75)


def test_an_area_ends_between_two_points() -> None:
    # at 0.5 the line from (0, 100) to (1, 0) is at 50
    assert area([(0.0, 100.0), (1.0, 0.0)], 0.5) == pytest.approx(75.0)


def test_points_of_one_place_count_as_their_mean() -> None:
    assert area([(0.0, 80.0), (0.5, 70.0), (0.5, 50.0)], 0.5) == pytest.approx(70.0)


@pytest.mark.parametrize("points", [[], [(0.0, 5.0)], [(0.0, 9.0), (0.874, 9.0)], [(0.1, 9.0), (0.9, 9.0)]])
def test_there_is_no_area_beyond_the_points(points: list[tuple[float, float]]) -> None:
    assert area(points, 0.875) is None
