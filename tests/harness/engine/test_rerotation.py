"""Positions counted inside the cache, against caches whose keys never had another position.

RoPE's angles are float32 in transformers, so equal distances at other positions differ by the rounding of the angles.
Tests to 1e-9 give model and reference the same frequencies with angles in float64; nothing else differs then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context, Prefix
from harness.engine.decode import Answer, Question, decode
from harness.engine.eviction import Policy
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from harness.engine.rerotation import moved_keys, moving
from harness.models import loading
from methods.base import Method, Protection
from methods.budgets import number_kept
from methods.h2o import H2O
from methods.knorm import Knorm
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from methods.streaming_llm_rerotated import StreamingLLMRerotated
from methods.tova import TOVA
from tests.tiny import (
    ALL_FED,
    CONTEXT,
    FED,
    PRUNABLE,
    Past,
    Plain,
    batch,
    close,
    engine_logprobs,
    own_masks,
    some_ids,
    some_masks,
    tiny,
)

TOKENS = len(CONTEXT)
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
HALF = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in ("llama", "qwen2", "qwen2_sliding", "qwen3", "mistral", "phi3", "gemma3")},
    "llama with yarn": ("llama", {"rope_parameters": YARN}),
    "llama with llama3": ("llama", {"rope_parameters": LLAMA3}),
    "phi3 that turns half": ("phi3", {"rope_parameters": HALF}),
}


class ExactAngles(nn.Module):
    """A model's own rotary frequencies and scaling, with angles in float64."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary
        if hasattr(rotary, "layer_types"):
            self.layer_types = rotary.layer_types

    def forward(self, like: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        own = "" if layer_type is None else f"{layer_type}_"
        rates = getattr(self.rotary, f"{own}inv_freq").double()
        angles = position_ids.unsqueeze(-1).double() * torch.cat([rates, rates])
        scaling = getattr(self.rotary, f"{own}attention_scaling")
        return angles.cos() * scaling, angles.sin() * scaling


class Fresh(Plain):
    """Caches of keys that are turned for the first time where they stand."""

    def turned(self, values: Tensor, positions: Tensor) -> Tensor:
        """``[n, heads * d]`` -> ``[heads, n, d]`` at positions ``[n]``."""
        size, theta = self.lm.config.head_dim, self.lm.config.rope_parameters["rope_theta"]
        left, right = values.view(len(values), values.shape[1] // size, size).transpose(0, 1).chunk(2, dim=-1)
        rates = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
        angles = positions.unsqueeze(1).double() * rates.double()
        cos, sin = angles.cos().to(values.dtype), angles.sin().to(values.dtype)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    def hidden(self, ids: Sequence[int] = CONTEXT) -> list[Tensor]:
        return [layer.hidden for layer in self.forward(ids)[1]]

    @torch.inference_mode()
    def cache(self, hidden: Sequence[Tensor], keep: Tensor, last: int | None = None) -> Past:
        """Keys and values of what ``keep [L, H, C]`` keeps, computed from ``hidden[layer] [C, D]`` at positions 0, 1,
        ... of each head; with ``last`` at positions that end there instead."""
        past = []
        for module, rows, masks in zip(self.lm.attention, hidden, keep, strict=True):
            heads = []
            for head, mask in enumerate(masks):
                count = int(mask.sum())
                first = 0 if last is None else last + 1 - count
                keys = self.turned(rows[mask] @ module.k_proj.weight.T, torch.arange(first, first + count))
                values = (rows[mask] @ module.v_proj.weight.T).view(count, len(masks), self.lm.info.head_size)
                heads.append((keys[head], values[:, head]))
            past.append(heads)
        return past


def exact(family: str = "llama", dtype: torch.dtype = torch.float64, **changes: Any) -> LanguageModel:
    lm = tiny(family, dtype, **changes)
    lm.decoder.rotary_emb = ExactAngles(lm.decoder.rotary_emb)
    return lm


LM = exact()
PREFIX = prefill(LM, Context(CONTEXT)).prefix
PLAIN = Fresh(LM.model)


def streaming(kept: int, cached: int = TOKENS, sinks: int = 4) -> Tensor:
    """Bool ``[cached]``: the sinks and the newest, ``kept`` together."""
    keep = torch.zeros(cached, dtype=torch.bool)
    keep[:sinks] = True
    keep[cached - (kept - sinks) :] = kept > sinks
    return keep


def masks(*kept: int, lm: LanguageModel = LM, cached: int = TOKENS) -> Tensor:
    heads = (lm.info.layers, lm.info.kv_heads, cached)
    return torch.stack([streaming(number, cached).expand(heads) for number in kept])


def moved(keep: Tensor, fed: Sequence[Sequence[int]] = FED, lm: LanguageModel = LM, prefix: Prefix = PREFIX) -> Tensor:
    """What the engine says with positions counted in the cache."""
    return engine_logprobs(lm, prefix, keep, fed, positions=["cache"] * len(keep))


LEVELS = (4, 5, 11, 22, 33, 44, 45)


@pytest.mark.parametrize("fed", [((5,),), ((5, 6, 7),), FED, (some_ids(60, seed=3), (1,))], ids=["1", "3", "6+", "60+"])
def test_kept_tokens_stand_at_0_to_k_and_the_question_at_k(fed: Sequence[Sequence[int]]) -> None:
    tokens, keep = [token for chunk in fed for token in chunk], masks(*LEVELS)
    for own, mask, kept in zip(moved(keep, fed), keep, LEVELS, strict=True):
        close(own, PLAIN.logprobs(tokens, kept, PLAIN.cache(PLAIN.hidden(), mask)))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_tokens_really_at_their_new_positions_in_the_unpatched_model(name: str) -> None:
    family, changes = FAMILIES[name]
    lm = exact(family, **changes)
    levels = (4, 9, 30, 45)
    found = moved(masks(*levels, lm=lm), lm=lm, prefix=prefill(lm, Context(CONTEXT)).prefix)
    for own, kept in zip(found, levels, strict=True):
        close(own, unpatched_with_moved_sinks(lm, family, kept).log_softmax(-1))


@torch.inference_mode()
def unpatched_with_moved_sinks(lm: LanguageModel, family: str, kept: int, sinks: int = 4) -> Tensor:
    """Logits of the unpatched model for ``ALL_FED`` in one forward over the context, its first tokens once more where
    they are to stand, and what is fed. The second copy sees itself alone, as the first tokens do."""
    shift = TOKENS - kept
    ids = (*CONTEXT, *CONTEXT[:sinks], *ALL_FED)
    places = torch.tensor([*range(TOKENS), *range(shift, shift + sinks), *range(TOKENS, TOKENS + len(ALL_FED))])
    index = torch.arange(len(ids))
    first, copy, fed = index < TOKENS, (index >= TOKENS) & (index < TOKENS + sinks), index >= TOKENS + sinks
    newest = first & (index >= TOKENS - (kept - sinks))

    def mask_of(layer: int, window: int | None) -> Tensor:
        seen = index <= index.unsqueeze(1)
        seen[copy] &= copy
        if layer in PRUNABLE[family]:
            seen[fed] &= newest | copy | fed
        else:
            seen[fed] &= first | fed
        if window is not None:
            seen &= places > places.unsqueeze(1) - window
        return torch.zeros(1, 1, *seen.shape, dtype=lm.dtype).masked_fill(~seen, float("-inf"))

    with own_masks(lm.model, mask_of):
        return lm.model(torch.tensor([ids]), position_ids=places.unsqueeze(0), use_cache=False).logits[0, fed]


@pytest.mark.parametrize("seed", range(3))
def test_any_mask_closes_its_gaps_head_by_head(seed: int) -> None:
    keep = some_masks(3, 3, 3, TOKENS, seed)
    for own, mask in zip(moved(keep), keep, strict=True):
        close(own, PLAIN.logprobs(ALL_FED, TOKENS, PLAIN.cache(PLAIN.hidden(), mask, TOKENS - 1)))


@pytest.mark.parametrize("seed", range(5))
def test_pairs_move_by_the_number_of_removed_ones_after_them(seed: int) -> None:
    keep = some_masks(1, 3, 2, 17, seed)[0]
    keep[0, 0], keep[0, 1] = True, False
    moves, most = moving(keep), 0
    for at in itertools.product(range(3), range(2)):
        flags, real = keep[at].tolist(), moves.real[at]
        expected = [[t, flags[t:].count(False)] for t in range(17) if flags[t] and False in flags[t:]]
        assert torch.stack([moves.places[at][real], moves.by[at][real]], dim=-1).tolist() == expected
        assert moves.mask[at].nonzero().flatten().tolist() == [place for place, _ in expected]
        most = max(most, len(expected))
    assert moves.places.shape == (3, 2, most)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_moved_key_is_the_key_that_the_model_makes_there(name: str) -> None:
    family, changes = FAMILIES[name]
    for dtype, atol in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.04)):
        lm = exact(family, dtype, **changes)
        for layer in lm.prunable:
            generator = torch.Generator().manual_seed(layer)
            plain = torch.randn(3, 6, lm.info.head_size, generator=generator).to(dtype)
            places, by = torch.arange(6).expand(3, -1), torch.tensor([0, 1, 30, 30, 31, 400]).expand(3, -1)
            before, after = (turn_by_hand(lm, layer, plain, there).to(dtype) for there in (places, places + by))
            close(moved_keys(lm, layer, before, places, by), after, atol)


def turn_by_hand(lm: LanguageModel, layer: int, keys: Tensor, positions: Tensor) -> Tensor:
    """Each pair of components as a complex number times the model's scaling and e to the i angle."""
    cos, sin = lm.rotation(layer, positions[0])
    half = cos.shape[-1] // 2
    numbers = torch.complex(keys[..., :half].double(), keys[..., half : 2 * half].double())
    numbers = numbers * torch.complex(cos[:, :half].double(), sin[:, :half].double())
    return torch.cat([numbers.real, numbers.imag, keys[..., 2 * half :].double()], dim=-1)


def test_the_question_stands_at_the_original_length_and_the_sinks_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[list[int]] = []
    forward = LM.decoder.forward

    def spy(**given: Any) -> Any:
        fed.append(given["position_ids"][0].tolist())
        return forward(**given)

    monkeypatch.setattr(LM.decoder, "forward", spy)
    kept = 11
    run = MaskedRun(batch(LM, PREFIX, masks(kept, kept), positions=["original", "cache"]), 3)
    with run.engaged():
        run.advance(torch.tensor([[7, 8, 9]] * 2))
    assert fed == [[TOKENS, TOKENS + 1, TOKENS + 2]]
    assert run.used == 3 and run.slots == [4, 4, 4]
    for layer, hidden in enumerate(PLAIN.hidden()):
        unturned = hidden[:4] @ LM.attention[layer].k_proj.weight.T
        # in the cache the question is at k and a sink at its index
        close(run.keys[layer][1, :, :4], PLAIN.turned(unturned, torch.arange(4) + TOKENS - kept))
        assert torch.isinf(run.suffix_bias[layer][0, :, :4]).all()  # type: ignore[index]


def rolling(context: Sequence[int], fed: Sequence[Sequence[int]], capacity: Callable[[int], int], first: int) -> Tensor:
    """StreamingLLM as published: hidden states stand for the keys before RoPE, which get the position of their place
    in the cache anew in each forward. ``first`` pairs are left of the context. Log-probabilities of all fed tokens."""
    hidden = PLAIN.hidden(context)
    kept, parts = list(range(len(context))), []

    def shrink(most: int) -> None:
        if len(kept) > most:
            kept[4 : len(kept) - (most - 4)] = []

    shrink(first)
    for chunk in fed:
        left = torch.zeros(len(hidden[0]), dtype=torch.bool)
        left[kept] = True
        found, seen = PLAIN.forward(chunk, len(kept), PLAIN.cache(hidden, left.expand(3, 3, -1)))
        parts.append(found)
        kept += range(len(hidden[0]), len(hidden[0]) + len(chunk))
        hidden = [torch.cat([old, layer.hidden]) for old, layer in zip(hidden, seen, strict=True)]
        shrink(capacity(len(hidden[0])))
    return LM.logits(torch.cat(parts)).log_softmax(dim=-1)


LEVELS_WHILE_DECODING: list[dict[str, Any]] = [{"keep_tokens": 10}, {"keep_tokens": 4}]
LEVELS_WHILE_DECODING += [{"removed": Decimal(share)} for share in ("0.5", "0.1")]


@pytest.mark.parametrize("level", LEVELS_WHILE_DECODING, ids=str)
@pytest.mark.parametrize("cached", [2, 30])
@pytest.mark.parametrize("phase", ["decode", "both"])
def test_while_decoding_it_is_the_rolling_cache_of_the_paper(phase: str, cached: int, level: dict[str, Any]) -> None:
    method = StreamingLLMRerotated()
    policy = Policy(method, method.mechanism, **level)
    fed = (some_ids(5, seed=1), *((token,) for token in some_ids(12, seed=2)), some_ids(3, seed=3), (8,))
    first = max(4, policy.capacity(cached)) if phase == "both" else cached
    keep = streaming(first, cached) if first < cached else torch.ones(cached, dtype=torch.bool)
    scored = prefill(LM, Context(CONTEXT[:cached]), [method])
    run = MaskedRun(batch(LM, scored, keep.expand(1, 3, 3, -1), policies=[policy], positions=["cache"]), 30)

    def capacity(count: int) -> int:
        return max(4, policy.capacity(count))

    with torch.inference_mode(), run.engaged():
        found = torch.cat([run.advance(torch.tensor([chunk])) for chunk in fed], dim=1)
        close(LM.logits(found[0]).log_softmax(-1), rolling(CONTEXT[:cached], fed, capacity, first))
    for layer in run.evictors[0].keep:
        assert layer.sum(dim=-1).max() == min(layer.shape[-1], capacity(cached + 21))


def answers(rows: Sequence[tuple[Method, int, str, bool]], count: int = 12) -> list[Answer]:
    """Answers of one batch of (method, pairs kept, positions, whether it prunes while decoding)."""
    scored = prefill(LM, Context(CONTEXT), [method for method, *_ in rows])
    keep = masks(*(kept for _, kept, _, _ in rows))
    policies = [Policy(m, m.mechanism, keep_tokens=kept) if decoding else None for m, kept, _, decoding in rows]
    question = Question(some_ids(5, seed=1), count, stop_ids=frozenset(range(0, 97, 9)))
    return decode(batch(LM, scored, keep, policies=policies, positions=[kind for _, _, kind, _ in rows]), question)


def test_a_batch_with_other_variants_gives_what_each_gives_alone() -> None:
    plain, moved = StreamingLLM(), StreamingLLMRerotated()
    rows: list[tuple[Method, int, str, bool]] = [
        (Knorm(), TOKENS, "original", False),
        (Knorm(), TOKENS, "original", False),  # decoded once: rows of the batch are not rows of the list
        (moved, 8, "cache", False),
        (plain, 8, "original", False),
        (H2O(), 12, "original", True),
        (moved, 12, "cache", True),
        (plain, 12, "original", True),
        (moved, 30, "cache", False),
        (moved, 30, "cache", True),
        *((method, kept, "original", True) for method in (H2O(), TOVA(), Knorm(), Random()) for kept in (10, 30)),
    ]
    together = answers(rows)
    alone = [answers([row])[0] for row in rows]
    assert together == alone
    assert [answer.kept for answer in together] == [answer.kept for answer in alone]
    assert len({answer.steps for answer in together}) > 1  # rows left the batch one after the other
    assert len({answer.ids for answer in together}) > 4


@pytest.mark.parametrize("kept", [4, 8, 30, TOKENS])
@pytest.mark.parametrize("decoding", [False, True])
def test_pairs_are_counted_as_with_original_positions(kept: int, decoding: bool) -> None:
    (plain,) = answers([(StreamingLLM(), kept, "original", decoding)])
    (moved,) = answers([(StreamingLLMRerotated(), kept, "cache", decoding)])
    assert plain.kept and moved.kept
    assert all(one == other for one, other in zip(plain.kept, moved.kept, strict=False))  # one may stop earlier


def test_attention_weights_of_other_methods_have_a_column_for_each_pair_and_sum_to_one() -> None:
    class Reading(H2O):
        def score_step(self, step: Any, scores: Tensor) -> Tensor:
            seen.append(step.weight_sums)
            return super().score_step(step, scores)

    seen: list[Tensor] = []
    reading = Reading()
    policies: list[Policy | None] = [Policy(reading, Protection(), keep_tokens=20), None]
    scored, positions = prefill(LM, Context(CONTEXT), [StreamingLLMRerotated(), reading]), ["original", "cache"]
    engine_logprobs(LM, scored, masks(TOKENS, 8), [(5, 6, 7), (8,)], policies=policies, positions=positions)
    assert [weights.shape for weights in seen] == [(1, 9, TOKENS + 3)] * 3 + [(1, 9, TOKENS + 4)] * 3
    for weights, queries in zip(seen, [3.0] * 3 + [1.0] * 3, strict=True):
        torch.testing.assert_close(weights.sum(dim=-1), torch.full((1, 9), queries))


def test_byte_budget_and_order_of_rows_change_nothing() -> None:
    keep, stand = masks(8, 8, 30, TOKENS), ["original", "cache", "cache", "original"]
    whole = engine_logprobs(LM, PREFIX, keep, FED, positions=stand)
    for block_bytes in (1, 2 * 3 * 9 * 60 * 8, 2 * 13 * 9 * 60 * 8):
        close(engine_logprobs(LM, PREFIX, keep, FED, positions=stand, block_bytes=block_bytes), whole)
    order = [2, 0, 3, 1]
    close(engine_logprobs(LM, PREFIX, keep[order], FED, positions=[stand[row] for row in order]), whole[order])


@pytest.mark.real_model
def test_the_embedded_model_in_float32_agrees_with_keys_turned_anew(stored_model: str) -> None:
    loaded = loading.load(stored_model, device="cpu", dtype="float32")
    lm, encode = loaded.lm, loaded.tokenizer.encode
    text = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
    ids = tuple(encode(text * 12, add_special_tokens=False)[:256])
    question = tuple(encode("What colour is the grass?", add_special_tokens=False))
    prefix, plain = prefill(lm, Context(ids)).prefix, Fresh(lm.model)
    levels = [number_kept(256, Decimal(removed)) for removed in ("0.25", "0.75", "0.9")]
    keep, fed = masks(*levels, lm=lm, cached=256), [question, (28,)]
    found = moved(keep, fed, lm, prefix)
    for own, mask, kept in zip(found, keep, levels, strict=True):
        close(own, plain.logprobs((*question, 28), kept, plain.cache(plain.hidden(ids), mask)), 1e-3)
    assert (engine_logprobs(lm, prefix, keep, fed) - found).abs().amax(dim=(1, 2)).min() > 1e-2
