"""Every method's score on 64 tokens against its formula written out by brute force (9 query heads over 3 KV heads)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.prefill import prefill
from methods.base import Method, Observation, Pass
from methods.knorm import Knorm
from methods.kvzip import REPEAT_ALL, REPEAT_FROM, KVzip
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from tests.methods.scoring import scores_of
from tests.tiny import Plain, some_ids, tiny

TOKENS, TEMPLATE = 64, 5
SUFFIX = (11, 12, 13)
INSTRUCTIONS = {REPEAT_ALL: [21, 22], REPEAT_FROM: [31, 32, 33, 34]}


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny("llama", torch.float32)


@pytest.fixture(scope="module")
def lm64() -> LanguageModel:
    return tiny("llama", torch.float64)


def context(tokens: int = TOKENS, prefix: int = TEMPLATE) -> Context:
    return Context(some_ids(tokens), prefix, SUFFIX, INSTRUCTIONS.__getitem__)


def score(lm: LanguageModel, method: Method, given: Context | None = None, **more: int) -> Tensor:
    return scores_of(lm, method, given or context(), **more)


def test_the_plain_llama_is_the_unpatched_model(lm64: LanguageModel) -> None:
    ids = some_ids(TOKENS)
    hidden, _ = Plain(lm64.model).forward(ids)
    with torch.inference_mode():
        expected = lm64.model.model(torch.tensor([ids])).last_hidden_state[0]
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-9)


def test_knorm_is_minus_the_norm_of_each_key(lm: LanguageModel) -> None:
    _, seen = Plain(lm.model).forward(some_ids(TOKENS))
    scores = score(lm, Knorm())
    for layer, head, place in [(la, h, t) for la in range(3) for h in range(3) for t in range(TOKENS)]:
        norm = math.sqrt(sum(x * x for x in seen[layer].keys[head][place].tolist()))
        assert scores[layer, head, place].item() == pytest.approx(-norm, abs=1e-5)


def test_streaming_llm_ranks_by_age_and_keeps_its_four_sinks_whatever_the_flags(lm: LanguageModel) -> None:
    scores = score(lm, StreamingLLM())
    assert scores.dtype == torch.float32
    assert (scores.diff(dim=-1) > 0).all()
    assert torch.equal(scores, scores[:1, :1].expand_as(scores))
    assert StreamingLLM.mechanism.mask(TOKENS, TEMPLATE).nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_random_is_uniform_differs_by_layer_head_context_and_seed_and_repeats(lm: LanguageModel) -> None:
    scores = score(lm, Random())
    assert torch.equal(scores, score(lm, Random()))
    assert (scores >= 0).all() and (scores < 1).all()
    assert abs(scores.mean().item() - 0.5) < 0.05 and abs(scores.var().item() - 1 / 12) < 0.02
    assert scores.flatten().unique().numel() == scores.numel()
    other_context = Context((*some_ids(TOKENS - 1), 0), TEMPLATE, SUFFIX, INSTRUCTIONS.__getitem__)
    for changed in (score(lm, Random(), seed=1), score(lm, Random(), other_context)):
        assert (changed != scores).float().mean() > 0.99


def test_random_does_not_touch_the_global_random_state(lm: LanguageModel) -> None:
    before = torch.random.get_rng_state()
    score(lm, Random())
    assert torch.equal(torch.random.get_rng_state(), before)


class Spy(KVzip):
    """Shows a test what a method is shown."""

    def score(self, seen: Observation) -> Tensor:
        SHOWN.append(seen)
        return super().score(seen)

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        SHOWN.append(seen)
        return super().score_pass(seen, run)


SHOWN: list[Observation] = []


def test_an_observation_shows_what_the_layer_computed(lm64: LanguageModel) -> None:
    SHOWN.clear()
    ids = some_ids(TOKENS)
    prefill(lm64, context(), [Spy()], seed=7)
    plain = Plain(lm64.model)
    _, first = plain.forward(ids)
    tokens = [*INSTRUCTIONS[REPEAT_ALL], *SUFFIX, *ids[TEMPLATE:]]
    _, second = plain.forward(tokens, TOKENS, plain.gathered(first, torch.ones(3, 3, TOKENS, dtype=torch.bool)))
    assert [seen.layer for seen in SHOWN] == [0, 1, 2, 0, 1, 2]
    for seen, expected in zip(SHOWN, first + second, strict=True):
        torch.testing.assert_close(seen.hidden, expected.hidden, rtol=0, atol=1e-9)
        torch.testing.assert_close(seen.queries, expected.queries, rtol=0, atol=1e-9)
        torch.testing.assert_close(seen.keys, torch.stack(expected.keys), rtol=0, atol=1e-9)
        torch.testing.assert_close(seen.values, torch.stack(expected.values), rtol=0, atol=1e-9)
        weight = lm64.model.model.layers[seen.layer].self_attn.o_proj.weight
        for query in range(9):
            assert torch.equal(seen.output_projection[query], weight[:, 8 * query : 8 * query + 8])
        assert (seen.group, seen.scaling, seen.prefix) == (3, 8**-0.5, TEMPLATE)
        assert seen.context_seed == context().seed(7) != context().seed(8)
    assert SHOWN[0].positions.tolist() == list(range(TOKENS))
    assert SHOWN[3].positions.tolist() == list(range(TOKENS, TOKENS + len(tokens)))
    assert (SHOWN[0].new, SHOWN[0].cached) == (TOKENS, TOKENS)
    assert (SHOWN[3].new, SHOWN[3].cached) == (len(tokens), TOKENS + len(tokens))


def test_a_shared_part_is_made_once() -> None:
    empty = torch.empty(1, 1, 1)
    seen = Observation(
        0, empty, empty, empty, empty, empty, 1.0, 0, 0, 1, lambda: empty, lambda positions: (empty, empty)
    )
    made: list[int] = []
    for _ in range(3):
        seen.shared("part", lambda: made.append(1) or len(made))
    assert made == [1]
