"""Masks of variants: how many pairs stay, when nothing is pruned, when protection decides."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Plan
from harness.engine.context import Context, Failure, Prefix, Scored
from harness.evaluation.keep_masks import Masks, masks
from methods.base import ModelInfo

LAYERS, HEADS = 3, 2
INFO = ModelInfo("any", layers=LAYERS, query_heads=4, kv_heads=HEADS, head_size=8, hidden_size=32)


def scores(cached: int, seed: int = 0) -> Tensor:
    return torch.randn(LAYERS, HEADS, cached, generator=torch.Generator().manual_seed(seed))


def made(cached: int, prefix: int = 0, method: str = "knorm", **more: Any) -> Masks:
    return masked(plan(RunConfig(method=(method,), **more), INFO), scores(cached), prefix)


def masked(planned: Plan, values: Tensor, prefix: int = 0) -> Masks:
    cached = values.shape[-1]
    empty = Prefix(Context(tuple(range(cached)), prefix), [], [], torch.empty(0))
    scored = Scored(empty, dict.fromkeys(planned.methods, values))
    return masks(planned.planned, scored, (LAYERS, HEADS, cached), prefix)


def counts(found: Masks, variant: int = 1) -> Tensor:
    return found.keep[variant].sum(dim=-1)


def test_the_control_keeps_everything() -> None:
    found = made(50, removed=(Decimal("0.9"),))
    assert found.keep[0].all()
    assert (found.short[0], found.bound[0]) == (False, False)


@pytest.mark.parametrize(
    ("cached", "removed", "kept"),
    [(1000, "0.9", 100), (1000, "0.75", 250), (7, "0.5", 3), (10, "0.99", 1), (10, "0", 10), (3, "1e-9", 2)],
)
def test_each_head_keeps_the_floor_and_at_least_one(cached: int, removed: str, kept: int) -> None:
    found = made(cached, removed=(Decimal(removed),))
    assert (counts(found) == kept).all()


@pytest.mark.parametrize(("asked", "kept"), [(1, 1), (12, 12), (40, 40), (41, 40), (10**12, 40)])
def test_kept_tokens_are_kept_in_each_head_up_to_all(asked: int, kept: int) -> None:
    found = made(40, keep_tokens=(asked,), window=(1,))
    assert (counts(found) == kept).all()
    assert found.keep[1, :, :, -1].all()


@pytest.mark.parametrize("budget", ["layer", "global"])
def test_uneven_budgets_keep_as_many_in_all(budget: str) -> None:
    found = made(101, budget=(budget,), removed=(Decimal("0.7"),))
    assert int(found.keep[1].sum()) == LAYERS * HEADS * 30
    assert len(set(counts(found).flatten().tolist())) > 1


def test_a_threshold_keeps_equal_scores_and_the_window() -> None:
    planned = plan(RunConfig(method=("knorm",), budget=("threshold",), threshold=(-1.0,), window=(2,)), INFO)
    values = torch.full((LAYERS, HEADS, 6), -2.0)
    values[:, :, 1] = -1.0
    found = masked(planned, values)
    assert found.keep[1].tolist() == [[[False, True, False, False, True, True]] * HEADS] * LAYERS


@pytest.mark.parametrize(("tau", "kept"), [(float("-inf"), 20), (float("inf"), 3)])
def test_infinite_thresholds_remove_nothing_or_all_but_the_window(tau: float, kept: int) -> None:
    found = made(20, budget=("threshold",), threshold=(tau,), window=(3,))
    assert (counts(found) == kept).all()


@pytest.mark.parametrize(("cached", "short"), [(5, True), (6, True), (7, False)])
def test_a_context_no_longer_than_its_protection_is_too_short(cached: int, short: bool) -> None:
    found = made(cached, removed=(Decimal("0.5"),), sinks=(2,), window=(4,))
    assert found.short == [False, short]
    assert bool(found.keep[1].all()) == short


@pytest.mark.parametrize(("cached", "short"), [(0, True), (1, True), (4, True), (5, False)])
def test_four_sinks_of_streaming_llm_are_protection_too(cached: int, short: bool) -> None:
    assert made(cached, method="streaming_llm", removed=(Decimal("0.5"),)).short[1] == short


@pytest.mark.parametrize(("own", "short"), [(0, True), (1, True), (2, False)])
def test_an_empty_and_a_one_token_context_are_too_short_for_all(own: int, short: bool) -> None:
    found = made(9 + own, prefix=9, removed=(Decimal("0.5"),))
    assert found.short == [False, short]


def test_protection_beyond_the_number_kept_is_exactly_what_stays() -> None:
    found = made(20, removed=(Decimal("0.9"),), sinks=(3,), window=(4,))
    assert found.bound == [False, True]
    places = set(found.keep[1, 0, 0].nonzero().flatten().tolist())
    assert places == {0, 1, 2, 16, 17, 18, 19}


@pytest.mark.parametrize(("removed", "bound"), [("0.65", False), ("0.66", True)])
def test_protection_of_just_the_number_kept_does_not_bind(removed: str, bound: bool) -> None:
    found = made(20, removed=(Decimal(removed),), sinks=(3,), window=(4,))
    assert found.bound[1] == bound
    assert (counts(found) == 7).all()


def test_the_template_prefix_is_protected_for_kvzip_until_sinks_replace_it() -> None:
    published = made(40, prefix=10, method="kvzip", removed=(Decimal("0.8"),))
    assert published.keep[1, :, :, :10].all()
    assert published.bound[1]
    replaced = made(40, prefix=10, method="kvzip", removed=(Decimal("0.8"),), sinks=(1,))
    assert replaced.keep[1, :, :, 0].all()
    assert not replaced.keep[1, :, :, :10].all()
    assert not replaced.bound[1]


def test_protected_pairs_count_inside_the_number_kept() -> None:
    found = made(40, removed=(Decimal("0.5"),), sinks=(2,), window=(5,))
    assert found.keep[1, :, :, :2].all()
    assert found.keep[1, :, :, -5:].all()
    assert (counts(found) == 20).all()


@pytest.mark.parametrize("windows", [(0, 6), (6, 0)])
def test_each_protection_ranks_the_same_scores_for_itself(windows: tuple[int, int]) -> None:
    found = made(30, removed=(Decimal("0.7"),), window=windows)
    for index, window in enumerate(windows, 1):
        alone = made(30, removed=(Decimal("0.7"),), window=(window,))
        assert torch.equal(found.keep[index], alone.keep[1])
    assert not torch.equal(found.keep[1], found.keep[2])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_fail_their_variants_only(bad: float) -> None:
    planned = plan(RunConfig(method=("knorm", "random"), removed=(Decimal("0.5"),)), INFO)
    values = scores(20)
    broken = values.clone()
    broken[2, 1, 19] = bad
    prefix = Prefix(Context(tuple(range(20))), [], [], torch.empty(0))
    scored = Scored(prefix, {planned.methods[0]: broken, planned.methods[1]: values})
    found = masks(planned.planned, scored, (LAYERS, HEADS, 20), 0)
    assert found.failed == {1: Failure("nan", "knorm gave scores that are not finite")}
    assert (found.keep[2].sum(dim=-1) == 10).all()
