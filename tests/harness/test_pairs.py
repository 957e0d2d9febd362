"""What a summary derives beside its cells: paired differences, ranks, curves, alarms. Each from runs made for it."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.analysis.paired_tests import all_pairs, scores_of
from harness.analysis.stats import mean_interval
from harness.results.schema import Facts
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, KVZAP, RANDOM, both, changed, lines_of, summary_of


def pair(a: Any, b: Any, *parts: Any) -> dict[str, Any]:
    lines = [line for part in parts for line in part]
    (found,) = [p for p in all_pairs(lines) if (p["a"], p["b"]) == (a.label, b.label)]
    return found


def random_scores(seed: int, mean: float = 50) -> dict[str, list[float]]:
    random = np.random.default_rng(seed)
    return {name: list(np.clip(random.normal(mean, 20, size), 0, 100)) for name, size in (("red", 10), ("blue", 14))}


def test_a_difference_is_that_of_the_two_overall_scores_with_the_interval_of_its_samples() -> None:
    ours, theirs = random_scores(1), random_scores(2)
    found = pair(KNORM, FULL, lines_of(FULL, theirs), lines_of(KNORM, ours))
    strata = [[a - b for a, b in zip(ours[name], theirs[name], strict=True)] for name in ("red", "blue")]
    assert found["difference"] == pytest.approx(fmean(map(fmean, strata)))
    assert (found["low"], found["high"]) == pytest.approx(mean_interval(strata), abs=1e-9)
    flat = strata[0] + strata[1]
    assert (found["better"], found["worse"]) == (sum(d > 0 for d in flat), sum(d < 0 for d in flat))
    assert (found["n"], found["n_unpaired"], found["n_subsets"]) == (24, 0, 2)
    assert (found["test"], found["exact"], found["p_mcnemar"]) == ("sign_flip", False, None)
    weighted = np.array([d / (2 * len(own)) for own in strata for d in own])
    other = scipy_stats.permutation_test(
        (weighted,), np.sum, permutation_type="samples", n_resamples=50_000, rng=np.random.default_rng(3)
    )
    assert found["p"] == pytest.approx(other.pvalue, abs=0.02)


def test_right_and_wrong_answers_are_tested_by_mcnemar() -> None:
    right = {"red": [100.0] * 9 + [0.0] * 3, "blue": [100.0] * 12}
    found = pair(KNORM, FULL, lines_of(FULL, both(100)), lines_of(KNORM, right))
    assert (found["test"], found["p"], found["p_mcnemar"]) == ("mcnemar", 0.25, 0.25)
    assert (found["better"], found["worse"], found["difference"]) == (0, 3, -12.5)
    assert found["p_sign_flip"] == 0.25  # equal subsets: the same test


def test_only_samples_that_both_have_are_compared() -> None:
    ours = {"red": [40.0] * 11 + [None], "blue": [40.0] * 12}
    theirs = {"red": [None, *[60.0] * 11], "blue": [60.0] * 12}
    found = pair(KNORM, FULL, lines_of(FULL, theirs), lines_of(KNORM, ours))
    assert (found["n"], found["n_unpaired"], found["difference"]) == (22, 2, -20.0)
    assert found["low"] == pytest.approx(-20.0)


def test_another_set_of_subsets_is_never_compared() -> None:
    found = pair(KNORM, FULL, lines_of(FULL, both(90)), lines_of(KNORM, {"red": [80.0] * 12, "blue": [None] * 12}))
    assert (found["n"], found["n_subsets"], found["n_unpaired"]) == (0, 0, 24)
    assert {found[name] for name in ("difference", "low", "p", "p_holm", "tie", "test")} == {None}


def test_there_is_a_test_but_no_interval_under_ten_samples_a_subset() -> None:
    found = pair(KNORM, FULL, lines_of(FULL, both(90, 9)), lines_of(KNORM, both(40, 9)))
    assert (found["low"], found["high"], found["n"], found["exact"]) == (None, None, 18, True)
    assert found["p"] == 2 / 2**18
    assert found["tie"] is False


def test_rollouts_of_a_sample_count_once_by_their_mean() -> None:
    rollouts = [lines_of(KNORM, both(score, 10), rollout=i) for i, score in enumerate((0.0, 100.0, 50.0))]
    found = pair(KNORM, FULL, lines_of(FULL, both(80, 10)), *rollouts)
    assert (found["n"], found["difference"], found["test"]) == (20, -30.0, "sign_flip")
    assert set(scores_of(line for some in rollouts for line in some).values()) == {("red", 50.0), ("blue", 50.0)}


def test_variants_meet_at_the_level_that_was_asked_for() -> None:
    other = changed(KEYDIFF, level=0.75)
    tokens = changed(RANDOM, level_kind="keep_tokens", level=8)
    parts = [lines_of(FULL, both(90)), *(lines_of(v, both(50)) for v in (KNORM, KEYDIFF, other))]
    parts += [lines_of(KVZAP, both(70), removed=0.61, requested=0.5), lines_of(tokens, both(20), removed=0.5)]
    found = all_pairs([line for part in parts for line in part])
    level = [(p["a"], p["b"]) for p in found if p["against"] == "level"]
    assert level == [(KNORM.label, KEYDIFF.label), (KNORM.label, KVZAP.label), (KEYDIFF.label, KVZAP.label)]
    assert [p["a"] for p in found if p["against"] == "control"] == [
        v.label for v in (KNORM, KEYDIFF, other, KVZAP, tokens)
    ]
    assert {p["b"] for p in found if p["against"] == "control"} == {"full"}


def test_query_modes_are_no_rivals() -> None:
    aware = changed(KEYDIFF, query_mode="aware")
    parts = [lines_of(FULL, both(90)), lines_of(KNORM, both(50)), lines_of(aware, both(80))]
    found = all_pairs([line for part in parts for line in part])
    assert [p["against"] for p in found] == ["control", "control"]


def test_p_is_adjusted_within_a_table_of_its_own() -> None:
    right = [100.0] * 24
    wrong = {KNORM: 6, KEYDIFF: 8, RANDOM: 2}

    def some(count: int) -> dict[str, list[float]]:
        values = [0.0] * count + right[count:]
        return {"red": values[:12], "blue": values[12:]}

    parts = [lines_of(FULL, both(100)), *(lines_of(v, some(count)) for v, count in wrong.items())]
    found = [p for p in all_pairs([line for part in parts for line in part]) if p["against"] == "control"]
    assert [p["p"] for p in found] == [2 / 2**6, 2 / 2**8, 0.5]
    assert [p["p_holm"] for p in found] == [2 * 2 / 2**6, 3 * 2 / 2**8, 0.5]
    assert [p["tie"] for p in found] == [True, False, True]  # 0.0625, 0.023, 0.5


def test_an_interval_with_zero_in_it_is_a_tie_whatever_the_p() -> None:
    scores = {"red": [90.0] * 11 + [0.0], "blue": [100.0] * 12}
    found = pair(KNORM, FULL, lines_of(FULL, {"red": [89.0] * 12, "blue": [100.0] * 12}), lines_of(KNORM, scores))
    assert found["low"] < 0 < found["high"]
    assert found["tie"] is True


def test_the_same_lines_give_the_same_pairs_and_another_seed_other_draws() -> None:
    lines = [*lines_of(FULL, random_scores(5, 60)), *lines_of(KNORM, random_scores(6))]
    assert all_pairs(lines, 1) == all_pairs(lines, 1)
    assert all_pairs(lines, 1)[0]["low"] != all_pairs(lines, 2)[0]["low"]


def ranked(*parts: Any, facts: Any = None) -> dict[str, tuple[Any, Any, Any]]:
    summary = summary_of(*parts, facts=facts or {"toy": Facts(subsets=2, chance=0.0)})
    return {row["variant"]: (row["rank"], row["tie"], row["unranked"]) for row in summary["ranks"]}


def test_ranks_count_who_is_better_beyond_a_tie() -> None:
    near = {"red": [81.0, 78.0] * 6, "blue": [79.0, 81.0] * 6}
    found = ranked(
        lines_of(FULL, both(95)), lines_of(KNORM, both(80)), lines_of(KEYDIFF, near), lines_of(RANDOM, both(30))
    )
    assert found[KNORM.label] == (1, True, None)
    assert found[KEYDIFF.label] == (1, True, None)
    assert found[RANDOM.label] == (3, False, None)


def test_a_clear_best_is_no_tie() -> None:
    found = ranked(lines_of(FULL, both(95)), lines_of(KNORM, both(80)), lines_of(KEYDIFF, both(60)))
    assert found == {KNORM.label: (1, False, None), KEYDIFF.label: (2, False, None)}


@pytest.mark.parametrize(
    ("control", "other", "facts", "reason"),
    [
        (lines_of(FULL, both(95)), lines_of(KEYDIFF, both(60, 11) | {"red": [None, *[60.0] * 11]}), 2, "1 not run"),
        (lines_of(FULL, both(10)), lines_of(KEYDIFF, both(60)), 2, "floor"),
        (lines_of(FULL, both(95)), lines_of(KEYDIFF, both(60)), 3, "mean of 2 of 3 subsets"),
        (lines_of(FULL, both(95, 9)), lines_of(KEYDIFF, both(60, 9)), 2, "under 10 samples a subset"),
        (lines_of(FULL, both(95)), lines_of(KEYDIFF, both(60), removed=0.44), 2, "removed less than asked"),
        (lines_of(FULL, both(95)), lines_of(KEYDIFF, both(60)), 2, "nothing to compare with"),
        (lines_of(FULL, both(95)), lines_of(KEYDIFF, {"red": [None] * 12, "blue": [None] * 12}), 2, "no score"),
    ],
)
def test_what_may_not_be_ranked_says_why(control: Any, other: Any, facts: int, reason: str) -> None:
    found = ranked(control, other, facts={"toy": Facts(subsets=facts, chance=0.0)})
    assert found[KEYDIFF.label] == (None, False, reason)


def test_having_removed_more_than_asked_is_no_reason() -> None:
    found = ranked(lines_of(FULL, both(95)), lines_of(KNORM, both(60)), lines_of(KEYDIFF, both(80), removed=0.6))
    assert found[KEYDIFF.label] == (1, False, None)


def curve(levels: dict[float, float], control: float = 100.0, **more: Any) -> dict[str, Any]:
    parts = [lines_of(changed(KNORM, level=removed), both(score)) for removed, score in levels.items()]
    (found,) = summary_of(lines_of(FULL, both(control)), *parts, **more)["curves"]
    return found


def test_a_curve_starts_at_the_control_and_ends_at_seven_eighths() -> None:
    found = curve({0.25: 90.0, 0.5: 70.0, 0.875: 40.0})
    by_hand = (0.25 * (100 + 90) / 2 + 0.25 * (90 + 70) / 2 + 0.375 * (70 + 40) / 2) / 0.875
    assert found["area"] == pytest.approx(by_hand)
    assert (found["curve"], found["why"], found["until"]) == ("knorm head", None, 0.875)
    assert found["points"] == [[0.25, 90.0], [0.5, 70.0], [0.875, 40.0]]


def test_a_curve_beyond_seven_eighths_is_cut_there_by_interpolation() -> None:
    ends = 70 - (70 - 40) * 0.375 / 0.45
    by_hand = (0.25 * 95 + 0.25 * 80 + 0.375 * (70 + ends) / 2) / 0.875
    assert curve({0.25: 90.0, 0.5: 70.0, 0.95: 40.0})["area"] == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("levels", "control", "facts", "why"),
    [
        ({0.25: 90.0, 0.5: 70.0, 0.75: 40.0}, 100.0, 2, "measured removed ends at 0.750"),
        ({0.5: 90.0, 0.875: 70.0}, 100.0, 2, "under 3 levels"),
        ({0.25: 9.0, 0.5: 7.0, 0.875: 4.0}, 10.0, 2, "floor"),
        ({0.25: 90.0, 0.5: 70.0, 0.875: 40.0}, 100.0, 4, "mean of 2 of 4 subsets"),
    ],
)
def test_a_curve_that_is_not_covered_or_not_comparable_has_no_area(
    levels: dict[float, float], control: float, facts: int, why: str
) -> None:
    found = curve(levels, control, facts={"toy": Facts(subsets=facts, chance=0.0)})
    assert (found["area"], found["why"]) == (None, why)


def test_each_setting_has_a_curve_of_its_own() -> None:
    tokens = changed(KNORM, level_kind="keep_tokens", level=8)
    windowed = changed(KNORM, window=4)
    parts = [lines_of(v, both(50), removed=0.5) for v in (KNORM, tokens, windowed)]
    found = summary_of(lines_of(FULL, both(90)), *parts)["curves"]
    assert [one["curve"] for one in found] == ["knorm head", "knorm head keep", "knorm head window=4"]


def alarms(*parts: Any, subsets: int = 2) -> list[tuple[str, Any]]:
    found = summary_of(*parts, facts={"toy": Facts(subsets=subsets, chance=0.0)})["alarms"]
    assert all((alarm["benchmark"], alarm["length"]) == ("toy", 64) and alarm["text"] for alarm in found)
    return [(alarm["kind"], alarm["variant"]) for alarm in found]


GOOD = lines_of(FULL, both(90))
WORSE = lines_of(KNORM, both(80))


def test_an_ordinary_run_raises_no_alarm() -> None:
    assert alarms(GOOD, WORSE) == []


def test_a_variant_that_beats_the_control_raises_one() -> None:
    assert alarms(GOOD, lines_of(KNORM, both(99))) == [("beats_control", KNORM.label)]
    assert alarms(lines_of(FULL, both(90, 9)), lines_of(KNORM, both(99, 9))) == [("beats_control", KNORM.label)]
    noise = {"red": [100.0, 81.0] * 6, "blue": [100.0, 81.0] * 6}
    assert alarms(GOOD, lines_of(KNORM, noise)) == []  # half a point, within its interval


def test_a_control_at_chance_raises_one() -> None:
    assert alarms(lines_of(FULL, both(10)), lines_of(KNORM, both(5))) == [("control_at_floor", "full")]


def test_truncated_and_cut_prompts_raise_one() -> None:
    long = {"red": [None, *[80.0] * 11], "blue": [80.0] * 12}
    truncated = [
        ln.model_copy(update={"status": "truncated"} if ln.score is None else {}) for ln in lines_of(KNORM, long)
    ]
    assert alarms(GOOD, truncated) == [("truncated", None)]
    assert alarms(GOOD, lines_of(KNORM, both(80), prompt_cut=True)) == [("prompt_cut", None)]


def test_failed_lines_raise_one() -> None:
    failed = lines_of(KNORM, {"red": [None, *[80.0] * 11], "blue": [80.0] * 12})
    assert alarms(GOOD, failed) == [("failed", KNORM.label)]
    assert "1 oom" in summary_of(GOOD, failed)["alarms"][0]["text"]


def test_answers_at_their_limit_raise_one_that_tells_of_the_control() -> None:
    found = summary_of(GOOD, lines_of(KNORM, both(80), finish_reason="length"))["alarms"]
    assert [(alarm["kind"], alarm["variant"]) for alarm in found] == [("answer_limit", None)]
    text = f"24 of 48 answers ran into their limit; the control's 0 of 24; most of {KNORM.label}, 24 of 24"
    assert found[0]["text"] == text


@pytest.mark.parametrize(("removed", "raised"), [(0.44, True), (0.46, False), (0.54, False), (0.56, True)])
def test_measured_removed_far_from_the_level_raises_one(removed: float, raised: bool) -> None:
    assert alarms(GOOD, lines_of(KNORM, both(80), removed=removed)) == [("off_level", KNORM.label)] * raised
    asked = lines_of(KVZAP, both(80), removed=removed, requested=0.5)
    assert alarms(GOOD, asked) == [("off_level", KVZAP.label)] * raised


def test_a_threshold_of_ones_own_has_no_fraction_to_miss() -> None:
    assert alarms(GOOD, lines_of(KVZAP, both(80), removed=0.9)) == []


def test_fewer_subsets_than_the_benchmark_has_raise_one() -> None:
    assert alarms(GOOD, WORSE, subsets=3) == [("partial", None)]


def test_subsets_of_unequal_size_are_not_tested_by_mcnemar() -> None:
    """Its counts would weigh each sample alike, and the difference beside them does not."""
    ours = {"red": [0.0] * 20 + [100.0] * 180, "blue": [100.0] * 6 + [0.0] * 4}
    theirs = {"red": [100.0] * 200, "blue": [0.0] * 10}
    found = pair(KNORM, FULL, lines_of(FULL, theirs), lines_of(KNORM, ours))
    assert (found["test"], found["p_mcnemar"], found["difference"]) == ("sign_flip", None, 25.0)
    assert found["p"] == found["p_sign_flip"]
