"""Delayed eviction fed in pieces against one prefill and a rule in plain Python."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from methods.budgets import Ranking
from methods.eviction import DelayedEviction

INFINITY = float("inf")
HEADS, TOKENS = 3, 40


def script(tokens: int = TOKENS, seed: int = 0) -> Tensor:
    """Scripted scores ``[H, T]`` in quarters, so that many equal the threshold."""
    return torch.randint(-8, 9, (HEADS, tokens), generator=torch.Generator().manual_seed(seed)).float() / 4


def fed(policy: DelayedEviction, scores: Tensor, sizes: list[int]) -> Tensor:
    keep = torch.empty(0)
    for part in scores.split(sizes, dim=1):
        keep = policy.append(part)
    return keep


def by_rule(scores: Tensor, tau: float, window: int, sure: int = 0) -> list[list[bool]]:
    cached = scores.shape[1]
    return [[s >= tau or t >= cached - window or t < sure for t, s in enumerate(row)] for row in scores.tolist()]


@pytest.mark.parametrize("window", [0, 1, 7, 39, 40, 41, 500])
@pytest.mark.parametrize("tau", [-INFINITY, -0.5, 0.0, 1.75, INFINITY])
def test_token_by_token_equals_one_prefill_equals_the_threshold_budget(window: int, tau: float) -> None:
    scores = script()
    at_once = DelayedEviction(tau, window).append(scores)
    assert torch.equal(fed(DelayedEviction(tau, window), scores, [1] * TOKENS), at_once)
    newest = torch.arange(TOKENS) >= TOKENS - window
    assert torch.equal(Ranking(scores.unsqueeze(0), newest).threshold(tau)[0], at_once)
    assert at_once.tolist() == by_rule(scores, tau, window)


@pytest.mark.parametrize("sizes", [[40], [33, 1, 1, 5], [5, 20, 15], [1, 39], [8] * 5, [0, 10, 0, 30]])
@pytest.mark.parametrize("window", [0, 6, 12])
def test_chunks_of_any_size_give_the_same_evicted_set(sizes: list[int], window: int) -> None:
    scores = script(seed=1)
    assert fed(DelayedEviction(0.25, window, sure=3), scores, sizes).tolist() == by_rule(scores, 0.25, window, 3)


def test_after_every_token_the_mask_is_that_of_the_rule_at_that_length() -> None:
    scores, policy = script(seed=2), DelayedEviction(0.0, 4)
    for length in range(1, TOKENS + 1):
        assert policy.append(scores[:, length - 1 : length]).tolist() == by_rule(scores[:, :length], 0.0, 4)


def test_a_verdict_is_final_and_a_mask_once_returned_does_not_change() -> None:
    scores, policy = script(seed=3), DelayedEviction(0.0, 2)
    masks = [policy.append(scores[:, t : t + 1]) for t in range(TOKENS)]
    copies = [mask.clone() for mask in masks]
    policy.append(torch.full((HEADS, 10), 99.0))
    for mask, copy in zip(masks, copies, strict=True):
        assert torch.equal(mask, copy)
    for earlier, later in pairwise(masks):
        assert not (later[:, : earlier.shape[1]] & ~earlier).any()  # never taken back in


def test_the_pair_that_leaves_the_window_is_judged_and_its_neighbour_is_not() -> None:
    policy = DelayedEviction(0.0, window=2)
    low = torch.tensor([[-1.0]])
    assert policy.append(low).tolist() == [[True]]
    assert policy.append(low).tolist() == [[True, True]]
    assert policy.append(low).tolist() == [[False, True, True]]
    assert policy.append(low).tolist() == [[False, False, True, True]]


def test_an_equal_score_stays() -> None:
    assert DelayedEviction(-4.0, 0).append(torch.tensor([[-4.0, -4.25, -3.75]])).tolist() == [[True, False, True]]


def test_the_first_sure_pairs_are_never_evicted() -> None:
    low = torch.full((HEADS, 9), -1.0)
    keep = fed(DelayedEviction(0.0, window=2, sure=3), low, [2, 1, 1, 5])
    assert keep.tolist() == [[True] * 3 + [False] * 4 + [True] * 2] * HEADS


def test_restored_state_goes_on_as_if_the_first_answer_had_not_been() -> None:
    context, first, second = script(), script(30, seed=4), script(9, seed=5)
    policy = DelayedEviction(0.0, 6)
    after_context = policy.append(context).clone()
    state = policy.snapshot()
    fed(policy, first, [4] + [1] * 26)
    policy.restore(state)
    again = fed(policy, second, [9])
    alone = fed(DelayedEviction(0.0, 6), torch.cat([context, second], dim=1), [TOKENS, 9])
    assert torch.equal(again, alone)
    policy.restore(state)
    assert torch.equal(policy.append(torch.empty(HEADS, 0)), after_context)


def test_a_fresh_state_can_be_restored() -> None:
    policy = DelayedEviction(0.0, 1)
    empty = policy.snapshot()
    policy.append(script())
    policy.restore(empty)
    assert policy.append(torch.tensor([[-1.0, -1.0]])).tolist() == [[False, True]]


def test_heads_are_judged_each_by_its_own_scores() -> None:
    assert DelayedEviction(0.0, 1).append(torch.tensor([[1.0, -1.0, -9.0], [-1.0, 1.0, -9.0]])).tolist() == [
        [True, False, True],
        [False, True, True],
    ]
