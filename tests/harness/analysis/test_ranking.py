"""Ranks of variants at one level, and curves over levels."""

from __future__ import annotations

from typing import Any

import pytest

from harness.results.schema import Facts
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, RANDOM, both, changed, lines_of, summary_of


def ranked(*parts: Any, facts: Any = None) -> dict[str, tuple[Any, Any, Any]]:
    summary = summary_of(*parts, facts=facts or {"toy": Facts(subsets=2, chance=0.0)})
    return {row.variant: (row.rank, row.tie, row.unranked) for row in summary.ranks}


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
    (found,) = summary_of(lines_of(FULL, both(control)), *parts, **more).curves
    return found


def test_a_curve_starts_at_the_control_and_ends_at_seven_eighths() -> None:
    found = curve({0.25: 90.0, 0.5: 70.0, 0.875: 40.0})
    by_hand = (0.25 * (100 + 90) / 2 + 0.25 * (90 + 70) / 2 + 0.375 * (70 + 40) / 2) / 0.875
    assert found.area == pytest.approx(by_hand)
    assert (found.curve, found.why, found.until) == ("knorm head", None, 0.875)
    assert found.points == [[0.25, 90.0], [0.5, 70.0], [0.875, 40.0]]


def test_a_curve_beyond_seven_eighths_is_cut_there_by_interpolation() -> None:
    ends = 70 - (70 - 40) * 0.375 / 0.45
    by_hand = (0.25 * 95 + 0.25 * 80 + 0.375 * (70 + ends) / 2) / 0.875
    assert curve({0.25: 90.0, 0.5: 70.0, 0.95: 40.0}).area == pytest.approx(by_hand)


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
    assert (found.area, found.why) == (None, why)


def test_each_setting_has_a_curve_of_its_own() -> None:
    tokens = changed(KNORM, level_kind="keep_tokens", level=8)
    windowed = changed(KNORM, window=4)
    parts = [lines_of(v, both(50), removed=0.5) for v in (KNORM, tokens, windowed)]
    found = summary_of(lines_of(FULL, both(90)), *parts).curves
    assert [one.curve for one in found] == ["knorm head", "knorm head keep", "knorm head window=4"]
