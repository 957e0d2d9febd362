"""Alarms: what a reader must know before believing a table."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config.variants import Variant
from harness.results.schema import Facts, Line
from tests.harness.made_runs import FULL, KNORM, KVZAP, both, lines_of, summary_of


def alarms(*parts: Any, subsets: int = 2) -> list[tuple[str, Any]]:
    found = summary_of(*parts, facts={"toy": Facts(subsets=subsets, chance=0.0)}).alarms
    assert all((alarm.benchmark, alarm.length) == ("toy", 64) and alarm.text for alarm in found)
    return [(alarm.kind, alarm.variant) for alarm in found]


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
    control, pruned = truncated(FULL), truncated(KNORM)
    assert alarms(control, pruned) == [("truncated", None)]
    assert summary_of(control, pruned).alarms[0].text == "1 of 24 prompts do not fit the model and were not run"
    assert alarms(GOOD, lines_of(KNORM, both(80), prompt_cut=True)) == [("prompt_cut", None)]


def truncated(variant: Variant) -> list[Line]:
    """Lines of a variant whose first sample does not fit."""
    lines = lines_of(variant, {"red": [None, *[80.0] * 11], "blue": [80.0] * 12})
    return [one.model_copy(update={"status": "truncated"} if one.score is None else {}) for one in lines]


def test_an_extra_pass_that_does_not_fit_is_its_methods_alarm() -> None:
    """The prompt ran for the others, so that it is not said to be too long for the model."""
    assert alarms(GOOD, truncated(KNORM)) == [("failed", KNORM.label)]
    assert "1 truncated" in summary_of(GOOD, truncated(KNORM)).alarms[0].text


def test_failed_lines_raise_one() -> None:
    failed = lines_of(KNORM, {"red": [None, *[80.0] * 11], "blue": [80.0] * 12})
    assert alarms(GOOD, failed) == [("failed", KNORM.label)]
    assert "1 oom" in summary_of(GOOD, failed).alarms[0].text


def test_answers_at_their_limit_raise_one_that_tells_of_the_control() -> None:
    found = summary_of(GOOD, lines_of(KNORM, both(80), finish_reason="length")).alarms
    assert [(alarm.kind, alarm.variant) for alarm in found] == [("answer_limit", None)]
    text = f"24 of 48 answers ran into their limit; the control's 0 of 24; most of {KNORM.label}, 24 of 24"
    assert found[0].text == text


@pytest.mark.parametrize(("removed", "raised"), [(0.44, True), (0.46, False), (0.54, False), (0.56, True)])
def test_measured_removed_far_from_the_level_raises_one(removed: float, raised: bool) -> None:
    assert alarms(GOOD, lines_of(KNORM, both(80), removed=removed)) == [("off_level", KNORM.label)] * raised
    asked = lines_of(KVZAP, both(80), removed=removed, requested=0.5)
    assert alarms(GOOD, asked) == [("off_level", KVZAP.label)] * raised


def test_a_threshold_of_ones_own_has_no_fraction_to_miss() -> None:
    assert alarms(GOOD, lines_of(KVZAP, both(80), removed=0.9)) == []


def test_fewer_subsets_than_the_benchmark_has_raise_one() -> None:
    assert alarms(GOOD, WORSE, subsets=3) == [("partial", None)]
