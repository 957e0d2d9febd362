"""How many pairs PyramidKV keeps in each layer."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.engine.context import Context, Prefix, Scored
from harness.evaluation.keep_masks import Masks, masks
from methods.base import ModelInfo
from methods.pyramidkv import PyramidKV
from tests.methods.scoring import masks_of
from tests.tiny import some_ids, tiny

LAYERS, TOKENS = 32, 4096
INFO = ModelInfo("any", layers=LAYERS, query_heads=4, kv_heads=2, head_size=8, hidden_size=32)


def made(*methods: str, **grid: Any) -> Masks:
    """Masks of random scores on 4,096 tokens, the same for all methods."""
    planned = plan(RunConfig(method=methods, **grid), INFO)
    empty = Prefix(Context(tuple(range(TOKENS))), [], [], torch.empty(0))
    scores = torch.rand(LAYERS, 2, TOKENS, generator=torch.Generator().manual_seed(0))
    return masks(planned.planned, Scored(empty, dict.fromkeys(planned.methods, scores)), (LAYERS, 2, TOKENS), 0)


def counts(found: Masks, variant: int = 1) -> Tensor:
    return found.keep[variant].sum(dim=-1)


@pytest.mark.parametrize(
    ("removed", "first", "last"),
    [("0.25", 4032, 2112), ("0.5", 3994, 102), ("0.75", 1024, 1024), ("0.875", 512, 512)],
)
def test_numbers_fall_evenly_from_the_first_layer_to_the_last_and_their_mean_is_the_levels(
    removed: str, first: int, last: int
) -> None:
    kept = int(TOKENS * (1 - Decimal(removed)))
    numbers = PyramidKV().kept_by_layer(kept, TOKENS, LAYERS)
    assert (numbers[0], numbers[-1]) == (first, last)
    steps = [a - b for a, b in pairwise(numbers)]
    assert max(steps) - min(steps) <= 1
    assert sum(numbers) / LAYERS == pytest.approx(kept, abs=0.1)
    found = made("pyramidkv", removed=(Decimal(removed),))
    assert counts(found).tolist() == [[number] * 2 for number in numbers]
    assert found.bound == found.short == [False, False]


def test_at_strong_levels_it_is_snapkv() -> None:
    levels = tuple(map(Decimal, ("0.75", "0.875", "0.99")))
    snapkv, pyramidkv = made("snapkv", "pyramidkv", removed=levels, budget=("head",)).keep[1:].split(3)
    assert torch.equal(snapkv, pyramidkv)


def test_layers_keep_their_numbers_of_a_real_context() -> None:
    found, scores = masks_of(tiny("llama"), Context(some_ids(400)), "pyramidkv", "snapkv", removed=(Decimal("0.5"),))
    assert torch.equal(scores["pyramidkv"], scores["snapkv"])
    assert counts(found).tolist() == [[336] * 3, [200] * 3, [64] * 3]
    assert found.keep[1, :, :, -64:].all()
    assert torch.equal(found.keep[1, 1], found.keep[2, 1])


@pytest.mark.parametrize("tokens", [1, 64, 65, 100, 129, 400, 1000, 4096])
@pytest.mark.parametrize("layers", [1, 2, 3, 36])
@pytest.mark.parametrize("beta", [1, 2, 20, 1000])
def test_numbers_are_whole_between_the_window_and_all_with_the_levels_mean(tokens: int, layers: int, beta: int) -> None:
    for kept in sorted({1, (tokens + 9) // 10, (tokens + 1) // 2, max(1, tokens - 1), tokens}):
        numbers = PyramidKV(beta=beta).kept_by_layer(kept, tokens, layers)
        assert len(numbers) == layers
        assert all(isinstance(number, int) and number <= tokens for number in numbers)
        assert numbers == sorted(numbers, reverse=True)
        assert sum(numbers) / layers == pytest.approx(kept, abs=0.5)
        assert numbers == [kept] * layers or numbers[-1] >= 64


def test_a_window_beyond_the_last_layers_number_binds_and_stays() -> None:
    found = made("pyramidkv", removed=(Decimal("0.5"),), window=(102, 200))
    assert found.bound == [False, False, True]
    assert counts(found, 2)[-1].tolist() == [200, 200]
    assert found.keep[2, :, :, -200:].all()
