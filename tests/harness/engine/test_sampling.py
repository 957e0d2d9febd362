"""Drawn tokens: which are possible, how often they come, and what decides the noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from harness.engine.adapter import EngineError
from harness.engine.sampling import Sampling

DRAWS = 2500


def logits(rows: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(rows, 97, generator=torch.Generator().manual_seed(seed))


def reference(values: Tensor, temperature: float, top_p: float, top_k: int) -> Tensor:
    """Log-probabilities after the warpers of transformers."""
    warpers: list[Any] = [TemperatureLogitsWarper(temperature)]
    warpers += [TopKLogitsWarper(top_k)] if top_k else []
    warpers += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    ids = torch.zeros(len(values), 1, dtype=torch.long)
    for warper in warpers:
        values = warper(ids, values)
    return values.log_softmax(dim=-1)


def shares(sampling: Sampling, row: Tensor, rollouts: bool) -> Tensor:
    """How often each token is drawn, over rollouts at one step or over the steps of one rollout."""
    if rollouts:
        drawn = sampling.pick(row.expand(DRAWS, -1), range(DRAWS), 5)
    else:
        drawn = torch.cat([sampling.pick(row.unsqueeze(0), [5], step) for step in range(DRAWS)])
    return drawn.bincount(minlength=len(row)) / DRAWS


@pytest.mark.parametrize("top_k", [0, 1, 2, 20, 97, 200])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5, 1e-6, 0.0])
def test_filters_are_those_of_transformers(top_p: float, top_k: int) -> None:
    values = logits(8)
    for temperature in (0.6, 1.0, 1.7):
        filtered = Sampling(temperature, "s", top_p, top_k)._filter(values / temperature)
        expected = reference(values, temperature, top_p, top_k)
        torch.testing.assert_close(filtered.log_softmax(dim=-1), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 1.0, 0), (0.5, 1.0, 0), (2.0, 1.0, 0), (0.6, 0.95, 20), (1.0, 0.7, 0), (1.0, 1.0, 3)],
)
@pytest.mark.parametrize("rollouts", [True, False])
def test_tokens_come_as_often_as_their_softmax_says(
    temperature: float, top_p: float, top_k: int, rollouts: bool
) -> None:
    row = torch.tensor([0.0, 1.0, -1.0, 1.5, 0.3, -2.0])
    expected = reference(row.unsqueeze(0), temperature, top_p, top_k).exp()[0]
    found = shares(Sampling(temperature, "seed/problem", top_p, top_k), row, rollouts)
    possible = expected > 0
    assert (found[~possible] == 0).all()
    error = (expected * (1 - expected) / DRAWS).sqrt()[possible]
    assert ((found - expected)[possible].abs() <= 4 * error + 1e-6).all()


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 0.0), (1.0, 1e-9), (1e-4, 1.0)])
def test_a_nucleus_of_nothing_and_a_low_temperature_are_greedy(temperature: float, top_p: float) -> None:
    values = logits(50)
    assert torch.equal(Sampling(temperature, "s", top_p).pick(values, range(50), 0), values.argmax(dim=-1))


def test_the_noise_of_a_rollout_and_step_does_not_depend_on_the_batch() -> None:
    sampling, values = Sampling(1.0, "s", 0.95, 20), logits(7)
    rollouts = [0, 1, 2, 0, 1, 2, 5]
    for step in range(20):
        together = sampling.pick(values, rollouts, step)
        alone = [int(sampling.pick(values[row : row + 1], [rollouts[row]], step)) for row in range(7)]
        assert together.tolist() == alone
        assert torch.equal(sampling.pick(values.flip(0), rollouts[::-1], step), together.flip(0))


def test_rows_of_one_rollout_draw_alike_and_other_rollouts_steps_and_streams_do_not() -> None:
    flat = torch.zeros(1, 5000)

    def drawn(stream: str, rollout: int, step: int) -> int:
        return int(Sampling(1.0, stream).pick(flat, [rollout], step))

    settings = [(stream, rollout, step) for stream in ("1/a", "2/a", "1/b") for rollout in (0, 12) for step in (0, 2)]
    found = [drawn(*setting) for setting in settings]
    assert len(set(found)) == len(found)
    assert found == [drawn(*setting) for setting in settings]
    assert len(set(Sampling(1.0, "1/a").pick(flat.expand(4, -1), [7] * 4, 3).tolist())) == 1


def test_nearly_the_same_logits_nearly_always_draw_the_same_token() -> None:
    sampling, values = Sampling(1.0, "s"), logits(500)
    nearby = values + 1e-3 * logits(500, seed=1)
    same = sampling.pick(values, range(500), 0) == sampling.pick(nearby, range(500), 0)
    assert same.float().mean() > 0.98


def test_low_precision_logits_are_drawn_from_in_float32() -> None:
    values = logits(20).bfloat16()
    sampling = Sampling(0.7, "s", 0.9)
    assert torch.equal(sampling.pick(values, range(20), 0), sampling.pick(values.float(), range(20), 0))


def test_drawing_does_not_touch_the_global_random_state() -> None:
    before = torch.random.get_rng_state()
    Sampling(1.0, "s").pick(logits(2), [0, 1], 0)
    assert torch.equal(torch.random.get_rng_state(), before)


TOO_COLD = r"a sampling temperature must be above 0, got .*; for greedy answers give"
NO_FILTER = "top_p must be from 0 to 1 and top_k 0"


@pytest.mark.parametrize(
    ("settings", "message"),
    [((temperature,), TOO_COLD) for temperature in (0.0, -1.0, float("nan"), float("inf"))]
    + [((1.0, *filters), NO_FILTER) for filters in ((1.1, 0), (-0.1, 0), (1.0, -1))],
)
def test_settings_that_mean_nothing_are_refused(settings: tuple[Any, ...], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        Sampling(settings[0], "s", *settings[1:])
