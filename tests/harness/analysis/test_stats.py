"""Intervals, paired tests, their correction, areas: against enumeration, second implementations, published values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.analysis import stats
from harness.analysis.stats import (
    DRAWS,
    EXACT,
    PERMUTATIONS,
    area,
    holm,
    mcnemar,
    mean_interval,
    mean_intervals,
    sign_flips,
    unit_sums,
)

#: (context, score) of each sample of a subset
Values = Mapping[str, Sequence[tuple[str, float]]]


def one(values: list[float], seed: int = 0) -> tuple[float, bool]:
    (found,) = sign_flips(np.array(values, dtype=float)[:, None], seed)
    return found


def all_sums(values: list[float]) -> list[float]:
    return [
        abs(sum(s * v for s, v in zip(signs, values, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]


@pytest.mark.parametrize("count", range(1, 13))
def test_up_to_twelve_samples_the_p_is_that_of_all_signs(count: int) -> None:
    random = np.random.default_rng(count)
    for values in (random.normal(1, 2, count), random.choice([0.0, 50.0, -50.0, 100.0], count)):
        sums = all_sums(list(values))
        expected = sum(total >= abs(sum(values)) - 1e-9 for total in sums) / len(sums)
        assert one(list(values)) == (pytest.approx(expected, abs=1e-15), True)


@pytest.mark.parametrize("count", [5, 9, 13])
def test_the_p_is_that_of_scipys_permutation_test(count: int) -> None:
    values = np.random.default_rng(count).normal(0.7, 1, count)
    other = scipy_stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert one(list(values))[0] == pytest.approx(other.pvalue, abs=1e-12)


def test_fishers_own_example() -> None:
    """Darwin's maize, "The Design of Experiments", section 21: 863 of 32,768 sums reach 314 on either side."""
    eighths = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    assert sum(eighths) == 314
    assert one(eighths) == (2 * 863 / 32_768, True)


def test_twenty_samples_are_enumerated_and_more_are_sampled() -> None:
    values = [float(i) for i in range(1, EXACT + 1)]
    assert one(values) == (2.0 / 2**EXACT, True)  # all of one sign: no other sum is as far out but its mirror image
    assert one([*values, 21.0]) == (1 / (PERMUTATIONS + 1), False)  # never 0
    assert one([0.0] * 40 + [3.0, 1.0, -2.0, 5.0]) == one([3.0, 1.0, -2.0, 5.0])
    assert one([0.0, 0.0]) == (1.0, True)


def test_a_sampled_p_is_near_the_exact_one_and_the_same_again() -> None:
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
    matrix = np.random.default_rng(2).normal(0.2, 1, (30, 3))
    matrix[8:, 0] = 0.0  # this one is exact, the others are sampled
    together = sign_flips(matrix)
    assert [found.exact for found in together] == [True, False, False]
    assert [one(list(column)) for column in matrix.T] == together


def test_under_the_null_a_p_is_seldom_small() -> None:
    random = np.random.default_rng(4)
    small = sum(one(list(random.normal(0, 1, 12)))[0] <= 0.05 for _ in range(400))
    assert 6 <= small <= 36  # 20 expected


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 0), (5, 0), (10, 2), (3, 3), (4, 5), (60, 41), (0, 40)])
def test_mcnemar_is_the_two_sided_binomial_test(better: int, worse: int) -> None:
    total = better + worse
    tail = sum(math.comb(total, k) for k in range(min(better, worse) + 1)) / 2**total
    assert mcnemar(better, worse) == pytest.approx(min(1.0, 2 * tail), rel=1e-12)
    assert mcnemar(better, worse) == mcnemar(worse, better)


@pytest.mark.parametrize(("better", "worse"), [(6, 1), (9, 5), (12, 8), (4, 4)])
def test_mcnemar_is_the_permutation_test_of_right_and_wrong(better: int, worse: int) -> None:
    assert one([100.0] * better + [-100.0] * worse + [0.0] * 9)[0] == pytest.approx(mcnemar(better, worse), rel=1e-12)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [holm([0.6, 0.5]), holm([0.03]), holm([])] == [[1.0, 1.0], [0.03], []]


@pytest.mark.parametrize(("counts", "there"), [((9,), False), ((10,), True), ((10, 9), False), ((30, 10), True)])
def test_there_is_no_interval_under_ten_samples_per_stratum(counts: tuple[int, ...], there: bool) -> None:
    strata = [[float(i) for i in range(count)] for count in counts]
    assert (mean_interval(strata) is not None) == there
    assert mean_interval([]) is mean_interval([[]]) is None
    assert mean_interval([[70.0] * 12, [30.0] * 10]) == (50.0, 50.0)


def test_the_interval_equals_that_of_an_independent_bootstrap() -> None:
    scores = np.random.default_rng(5).choice([0.0, 50.0, 100.0], size=40)
    low, high = mean_interval([scores]) or (0, 0)
    other = scipy_stats.bootstrap((scores,), np.mean, n_resamples=20_000, method="percentile", random_state=3)
    assert (low, high) == pytest.approx(tuple(other.confidence_interval), abs=1.0)
    assert low < scores.mean() < high
    first, again, other = (mean_interval([[float(i % 7) for i in range(30)]], seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_the_interval_of_several_subsets_resamples_each_by_itself() -> None:
    random = np.random.default_rng(6)
    red, blue = random.normal(90, 2, 200), random.normal(10, 20, 20)
    low, high = mean_interval([red, blue]) or (0, 0)
    draws = [fmean([random.choice(red, len(red)).mean(), random.choice(blue, len(blue)).mean()]) for _ in range(4000)]
    assert (low, high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.4)
    assert not low < np.concatenate([red, blue]).mean() < high  # the mean of subsets, not of samples


def test_the_interval_covers_the_true_mean_about_19_times_in_20() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for trial in range(100):
        low, high = mean_interval([random.binomial(1, 0.6, 60) * 100.0], seed=trial) or (0, 0)
        covered += low <= 60 <= high
    assert 88 <= covered <= 99


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


# Questions on one context are not independent: whole contexts are drawn.


def asked(seed: int, contexts: int, lacking: Sequence[int] = ()) -> Values:
    """Three questions on each context, which has a level of its own; the contexts ``lacking`` have two."""
    random = np.random.default_rng(seed)
    levels = random.uniform(20, 80, contexts)
    return {
        subset: [
            (f"c{place}", float(np.clip(random.normal(levels[place], 10), 0, 100)))
            for place in range(contexts)
            if subset != "q3" or place not in lacking
        ]
        for subset in ("q1", "q2", "q3")
    }


def by_hand(values: Values, seed: int) -> tuple[float, float]:
    """The bootstrap of contexts, draw by draw, that joins the values of all drawn contexts in each subset."""
    contexts = list(dict.fromkeys(context for own in values.values() for context, _ in own))
    picked = np.random.default_rng(seed).integers(len(contexts), size=(DRAWS, len(contexts)))
    own = {
        subset: [[score for context, score in some if context == name] for name in contexts]
        for subset, some in values.items()
    }
    means = []
    for draw in picked.tolist():
        drawn = [[score for place in draw for score in some[place]] for some in own.values()]
        if all(drawn):  # a draw that leaves a subset empty is passed over
            means.append(fmean(map(fmean, drawn)))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


RANDOM = np.random.default_rng(4)
#: several samples of a context in one subset
REPEATED = {"only": [(f"c{i}", float(RANDOM.normal(50 + i, 5))) for i in range(12) for _ in range(1 + i % 3)]}
#: one draw in nine has neither c3 nor c4
EMPTY = {"q1": [(f"c{i}", 10.0 * i) for i in range(10)], "q2": [("c3", 20.0), ("c4", 90.0)]}


@pytest.mark.parametrize("values", [asked(1, 14), asked(1, 14, (2, 7)), REPEATED, EMPTY])
def test_whole_contexts_are_drawn_over_all_subsets_at_once(monkeypatch: pytest.MonkeyPatch, values: Values) -> None:
    monkeypatch.setattr(stats, "FEWEST", 1)
    scores, units = [[s for _, s in own] for own in values.values()], [[c for c, _ in own] for own in values.values()]
    expected = by_hand(values, seed=3)
    assert mean_interval(scores, 3, units=units) == pytest.approx(expected, abs=1e-9)
    tables = [np.array(own)[:, None] for own in scores]
    assert mean_intervals(tables, 3, units=units)[0] == pytest.approx(expected, abs=1e-9)
    if len(values) == 3:
        low, high = mean_interval(scores, 3) or (0, 0)
        assert expected[1] - expected[0] > 1.3 * (high - low)  # what it is to take questions for independent


def test_the_same_question_asked_thrice_says_no_more_than_once() -> None:
    scores = list(np.random.default_rng(6).normal(50, 20, 15))
    units = [f"c{i}" for i in range(15)]
    once = mean_interval([scores])
    assert mean_interval([scores] * 3, units=[units] * 3) == pytest.approx(once, abs=1e-9)
    assert mean_interval([scores * 3], units=[units * 3]) == pytest.approx(once, abs=1e-9)


def test_one_sample_per_context_changes_nothing() -> None:
    random = np.random.default_rng(7)
    strata = [random.normal(50, 20, 11), random.choice([0.0, 100.0], 30)]
    units = [[f"{stratum}/{i}" for i in range(len(own))] for stratum, own in enumerate(strata)]
    assert mean_interval(strata, 8, units=units) == mean_interval(strata, 8)
    tables = [random.normal(size=(len(own), 3)) for own in strata]
    assert mean_intervals(tables, 8, units=units) == mean_intervals(tables, 8)
    assert np.array_equal(unit_sums(tables[0], units[0]), tables[0])


@pytest.mark.parametrize(("contexts", "there"), [(9, False), (10, True)])
def test_there_is_no_interval_under_ten_contexts(contexts: int, there: bool) -> None:
    scores, units = [float(i) for i in range(30)], [i % contexts for i in range(30)]
    assert (mean_interval([scores], units=[units]) is not None) == there
    assert (mean_intervals([np.array(scores)[:, None]], units=[units])[0] is not None) == there


@pytest.mark.parametrize(
    ("points", "until", "expected"),
    [
        # trapezoids 100..60 over 0.5 and 60..20 over 0.25: (40 + 10) / 0.75
        ([(0.0, 100.0), (0.5, 60.0), (0.75, 20.0)], 0.75, 50 / 0.75),
        ([(0.75, 20.0), (0.0, 100.0), (0.5, 60.0)], 0.75, 50 / 0.75),
        ([(0.0, 100.0), (1.0, 0.0)], 0.5, 75.0),  # at 0.5 the line is at 50
        ([(0.0, 80.0), (0.5, 70.0), (0.5, 50.0)], 0.5, 70.0),  # points of one place count as their mean
        ([], 0.875, None),
        ([(0.0, 5.0)], 0.875, None),
        ([(0.0, 9.0), (0.874, 9.0)], 0.875, None),  # no area beyond the points
        ([(0.1, 9.0), (0.9, 9.0)], 0.875, None),
    ],
)
def test_areas_by_hand(points: list[tuple[float, float]], until: float, expected: float | None) -> None:
    found = area(points, until)
    assert found == (None if expected is None else pytest.approx(expected))
