"""The threshold budget of a prefill is delayed eviction, however its tokens arrive."""

from __future__ import annotations

import pytest
import torch

from methods.base import Protection
from methods.budgets import Ranking
from tests.delayed import delayed

INFINITY = float("inf")
TOKENS = 40


@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("window", [0, 1, 7, 39, 40, 41, 500])
@pytest.mark.parametrize("tau", [-INFINITY, -0.5, 0.0, 1.75, INFINITY])
def test_token_by_token_equals_one_prefill(window: int, tau: float, sinks: int) -> None:
    # in quarters, so that many scores equal the threshold
    scores = torch.randint(-8, 9, (3, TOKENS), generator=torch.Generator().manual_seed(0)).float() / 4
    at_once = Ranking(scores[None], Protection(sinks, window).mask(TOKENS, 0)).threshold(tau)[0]
    for sizes in ([TOKENS], [1] * TOKENS, [13, 1, 1, 25]):
        assert torch.equal(delayed(scores, tau, window, sizes, sinks), at_once)
