"""Pruning while decoding: which pairs go, when, and that nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.cache import Context, Scored
from harness.engine.decode import Answer, Question, decode, decode_all
from harness.engine.evict import Policy, make_evictors
from harness.engine.masked import MaskedRun
from harness.engine.prefill import prefill
from methods.base import Method, Observation, Protection, Step
from methods.budgets import number_kept
from methods.eviction import DelayedEviction
from methods.h2o import H2O
from methods.knorm import Knorm
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from methods.tova import TOVA
from tests.tiny import some_ids, tiny

CONTEXT = some_ids(30)
ASKED = some_ids(5, seed=1)
CAPABLE = (Knorm(), Random(), StreamingLLM(), H2O(), TOVA())


@dataclass(frozen=True)
class Scripted(Method):
    """Scores that a script gives to each position, the same in all layers, another one for each head."""

    name: ClassVar[str] = "scripted"
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")

    def score(self, seen: Observation) -> Tensor:
        return script(torch.arange(seen.cached), seen.keys.shape[0])

    def score_new(self, step: Step) -> Tensor:
        return script(step.positions, step.keys.shape[1]).expand(step.keys.shape[0], -1, -1)


def script(positions: Tensor, heads: int) -> Tensor:
    return ((positions * 37 + 11 * torch.arange(heads).unsqueeze(1)) % 101).float()


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny(max_position_embeddings=1024)


def scored(lm: LanguageModel, *methods: Method) -> Scored:
    return prefill(lm, Context(CONTEXT), methods)


def everything(lm: LanguageModel, variants: int = 1) -> Tensor:
    return torch.ones(variants, lm.info.layers, lm.info.kv_heads, len(CONTEXT), dtype=torch.bool)


def final_masks(lm: LanguageModel, policy: Policy, new_tokens: int) -> list[Tensor]:
    """Keep masks ``[H, C]`` of each layer after a question and ``new_tokens`` fixed tokens."""
    found = scored(lm, policy.method)
    keep = everything(lm)
    evictors = make_evictors([policy], found.scores, keep, 0)
    run = MaskedRun(lm, found.prefix, keep, len(ASKED) + new_tokens, evictors=evictors)
    with run.engaged():
        run.advance(torch.tensor([ASKED]))
        for token in some_ids(new_tokens, seed=2):
            run.advance(torch.tensor([[token]]))
    return [layer[0] for layer in evictors[0].keep]


@pytest.mark.parametrize("window", [0, 7, 128])
def test_600_new_tokens_at_a_script_of_scores_lose_exactly_what_the_threshold_says(
    lm: LanguageModel, window: int
) -> None:
    cached = len(CONTEXT) + len(ASKED) + 600
    places = torch.arange(cached)
    first = len(CONTEXT) - window  # pairs that had left the window before decoding began are not judged
    judged = (places >= max(0, first)) & (places < cached - window)
    expected = ~judged | (script(places, 3) >= 50)
    for layer in final_masks(lm, Policy(Scripted(), Protection(window=window), threshold=50.0), 600):
        assert torch.equal(layer, expected)


def test_the_evictor_is_delayed_eviction_where_the_prefill_prunes_too(lm: LanguageModel) -> None:
    window, steps = 6, 40
    reference = DelayedEviction(50.0, window)
    reference.append(script(torch.arange(len(CONTEXT)), 3))
    for start, stop in [(30, 35), *((p, p + 1) for p in range(35, 35 + steps))]:
        last = reference.append(script(torch.arange(start, stop), 3))
    found = scored(lm, Scripted())
    before = DelayedEviction(50.0, window).append(script(torch.arange(len(CONTEXT)), 3))
    keep = before.expand(1, lm.info.layers, -1, -1).clone()
    evictors = make_evictors([Policy(Scripted(), Protection(window=window), threshold=50.0)], found.scores, keep, 0)
    run = MaskedRun(lm, found.prefix, keep, len(ASKED) + steps, evictors=evictors)
    with run.engaged():
        run.advance(torch.tensor([ASKED]))
        for token in some_ids(steps, seed=2):
            run.advance(torch.tensor([[token]]))
    assert all(torch.equal(layer[0], last) for layer in evictors[0].keep)


@pytest.mark.parametrize("method", CAPABLE, ids=lambda method: method.name)
@pytest.mark.parametrize("level", [{"removed": Decimal("0.5")}, {"keep_tokens": 12}])
def test_a_head_never_sees_more_than_its_capacity_and_what_is_gone_stays_gone(
    lm: LanguageModel, method: Method, level: dict[str, object]
) -> None:
    policy = Policy(method, method.mechanism, **level)  # type: ignore[arg-type]
    earlier = [final_masks(lm, policy, count) for count in (1, 2, 9)]
    for count, layers in zip((1, 2, 9), earlier, strict=True):
        cached = len(CONTEXT) + len(ASKED) + count
        capacity = 12 if "keep_tokens" in level else number_kept(cached, Decimal("0.5"))
        assert all(int(layer.sum(dim=-1).max()) <= capacity for layer in layers)
    for before, after in zip(earlier[0], earlier[2], strict=True):
        assert not (after[:, : before.shape[-1]] & ~before).any()


def test_streaming_llm_rolls_over_its_sinks_and_the_newest(lm: LanguageModel) -> None:
    cached = len(CONTEXT) + len(ASKED) + 20
    for layer in final_masks(lm, Policy(StreamingLLM(), StreamingLLM.mechanism, keep_tokens=12), 20):
        for head in layer:
            assert head.nonzero().flatten().tolist() == [0, 1, 2, 3, *range(cached - 8, cached)]


def test_h2o_keeps_its_newest_half_and_the_largest_sums_of_the_rest(lm: LanguageModel) -> None:
    cached = len(CONTEXT) + len(ASKED) + 20
    for layer in final_masks(lm, Policy(H2O(), Protection(), keep_tokens=12), 20):
        assert layer[:, cached - 6 :].all()
        assert (layer.sum(dim=-1) == 12).all()


def sampled(lm: LanguageModel, policies: list[Policy | None], found: Scored, count: int = 12) -> list[Answer]:
    answers = decode_all(lm, found, everything(lm, len(policies)), Question(ASKED, count), policies=policies)
    return [answer[0] for answer in answers]


def test_variants_that_prune_while_decoding_are_what_they_are_alone(lm: LanguageModel) -> None:
    found = scored(lm, *CAPABLE)
    policies: list[Policy | None] = [None]
    policies += [Policy(method, method.mechanism, keep_tokens=n) for method in CAPABLE for n in (10, 20)]
    together = sampled(lm, policies, found)
    alone = [sampled(lm, [policy], found)[0] for policy in policies]
    assert together == alone
    assert [answer.kept for answer in together] == [answer.kept for answer in alone]
    assert together[0] == decode(lm, found.prefix, everything(lm), Question(ASKED, 12))[0]


def test_a_second_question_starts_from_the_state_after_the_prefill(lm: LanguageModel) -> None:
    found = scored(lm, *CAPABLE)
    policies: list[Policy | None] = [Policy(method, method.mechanism, keep_tokens=10) for method in CAPABLE]
    first = sampled(lm, policies, found)
    assert sampled(lm, policies, found) == first == sampled(lm, policies, scored(lm, *CAPABLE))


def test_pairs_kept_are_counted_after_each_forward(lm: LanguageModel) -> None:
    found = scored(lm, Knorm())
    (answer,) = sampled(lm, [Policy(Knorm(), Protection(), keep_tokens=10)], found, 6)
    assert answer.kept == (9 * 10,) * 6
    (plain,) = sampled(lm, [None], found, 6)
    assert plain.kept == tuple(9 * (30 + 5 + step) for step in range(6))


def test_no_hook_is_left_behind(lm: LanguageModel) -> None:
    from tests.tiny import hook_count

    before = hook_count(lm.model)
    final_masks(lm, Policy(H2O(), Protection(), keep_tokens=12), 3)
    assert hook_count(lm.model) == before
