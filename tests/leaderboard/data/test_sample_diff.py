"""Samples on which two variants differ, by brute force."""

from __future__ import annotations

from leaderboard.data.sample_diff import differing, side_by_side, variants_of
from tests.harness.made_runs import FULL, KNORM, lines_of


def test_differences_are_those_of_brute_force() -> None:
    full = lines_of(FULL, {"red": [100.0, 50.0, 0.0], "blue": [None, 10.0]})
    knorm = lines_of(KNORM, {"red": [40.0, 50.0, 30.0], "blue": [10.0, 10.0]})
    pairs = side_by_side(full + knorm, "full", "knorm head 0.5")
    assert len(pairs) == 5
    assert [(pair.sample_id, pair.change) for pair in differing(pairs)] == [
        ("toy/red/64/0/0", -60.0),
        ("toy/red/64/0/2", 30.0),
        ("toy/blue/64/0/0", None),
    ]
    assert variants_of(full + knorm) == ("full", ["knorm head 0.5"])


def test_rollouts_are_averaged_before_they_are_compared() -> None:
    full = [line for rollout in (0, 1) for line in lines_of(FULL, {"red": [100.0 * rollout]}, rollout=rollout)]
    assert side_by_side(full + lines_of(KNORM, {"red": [50.0]}), "full", "knorm head 0.5")[0].change == 0
