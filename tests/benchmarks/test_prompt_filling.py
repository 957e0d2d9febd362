from __future__ import annotations

import random

import pytest

from benchmarks.base import BenchmarkError
from benchmarks.prompt_filling import largest_fit


def test_equals_a_linear_scan_from_any_guess() -> None:
    for trial in range(300):
        rng = random.Random(trial)
        costs = [rng.randint(1, 40)]
        for _ in range(400):
            # flat stretches as fwe has them, and jumps
            costs.append(costs[-1] + rng.choice([0, 0, 1, 3, 5, rng.randint(0, 60)]))
        room = rng.randint(costs[1], costs[-1] - 1)
        expected = max(n for n, cost in enumerate(costs) if cost <= room)
        guess = rng.choice([0, 1, expected, expected + 1, 399, rng.randint(0, 400)])
        costs += [costs[-1] + n for n in range(1, 20000)]  # the search may look far beyond
        found = largest_fit(costs.__getitem__, room, guess, 1, "x")
        assert found == expected, (trial, guess)


def test_costs_of_a_nearly_straight_line_need_few_measurements() -> None:
    calls = []

    def cost(n: int) -> int:
        calls.append(n)
        return 100 + 21 * n + n % 3

    assert largest_fit(cost, 4000, 10, 1, "x") == 185
    assert len(calls) <= 8


def test_smallest_sample_too_long() -> None:
    with pytest.raises(BenchmarkError, match=r"vt at 1024: its shortest prompt takes 50 tokens, the length leaves 40"):
        largest_fit(lambda n: 50 * n, 40, 3, 1, "vt at 1024")


def test_units_without_tokens_end_in_an_error() -> None:
    with pytest.raises(BenchmarkError, match="take only 7 tokens"):
        largest_fit(lambda n: 7, 1000, 1, 1, "x")
