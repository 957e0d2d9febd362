"""The masked engine in float64: hidden pairs are as good as gone, and the batch changes no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from harness.conformance.reference_cache import GatheredRun
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from harness.models.loading import Loaded
from methods.budgets import Ranking
from methods.knorm import Knorm
from tests.tiny import (
    ALL_FED,
    CONTEXT,
    FED,
    batch,
    close,
    engine_logprobs,
    everything,
    some_masks,
    tiny,
    unpatched_logits,
)

TOKENS = len(CONTEXT)
LM = tiny("llama")
PREFIX = prefill(LM, Context(CONTEXT)).prefix


def masks(variants: int = 5, seed: int = 0) -> Tensor:
    """Random masks, the first of which keeps everything."""
    keep = some_masks(variants, 3, 3, TOKENS, seed)
    keep[0] = True
    return keep


def logprobs(keep: Tensor, fed: Sequence[Sequence[int]] = FED) -> Tensor:
    return engine_logprobs(LM, PREFIX, keep, fed)


def gathered(keep: Tensor) -> Tensor:
    """What caches say whose pairs are really gone."""
    return GatheredRun.of(LM, PREFIX, keep).logprobs(ALL_FED)


def unpatched(keep: Tensor, lm: LanguageModel = LM) -> Tensor:
    """What the unpatched model says with a mask for each layer and head."""
    rows = [unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, mask) for mask in keep]
    return torch.stack(rows).log_softmax(-1)


def nothing_no_layer_no_head() -> Tensor:
    keep = masks(3, seed=5)
    keep[0] = False
    keep[1, 1] = False
    keep[2, :, 2] = False
    return keep


def one_single_pair() -> Tensor:
    keep = everything(2)
    keep[1, 2, 1, 20] = False
    return keep


@pytest.mark.parametrize("reference", [gathered, unpatched])
@pytest.mark.parametrize("make", [masks, nothing_no_layer_no_head, one_single_pair])
def test_what_a_mask_hides_is_gone(make: Callable[[], Tensor], reference: Callable[[Tensor], Tensor]) -> None:
    keep = make()
    found = logprobs(keep)
    close(found, reference(keep))
    assert (found[0] - found[1]).abs().max() > 1e-6  # and the masks matter


def test_a_batch_of_variants_equals_single_runs() -> None:
    keep = masks(7, seed=2)
    close(logprobs(keep), torch.cat([logprobs(keep[variant : variant + 1]) for variant in range(7)]))


@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3_sliding"])
@pytest.mark.parametrize("block_bytes", [1, 2 * 3 * 9 * 56 * 8, 2 * 8 * 9 * 56 * 8, 2 * 13 * 9 * 56 * 8])
def test_splitting_variants_and_rows_to_the_byte_budget_changes_nothing(family: str, block_bytes: int) -> None:
    lm = tiny(family)  # blocks of 1, 3, 8 and 13 query rows
    prefix = prefill(lm, Context(CONTEXT)).prefix
    keep = some_masks(5, lm.info.layers, 3, TOKENS, seed=3)
    whole = engine_logprobs(lm, prefix, keep, FED)
    close(engine_logprobs(lm, prefix, keep, FED, block_bytes=block_bytes), whole)


def test_blocks_cover_every_variant_and_row_once_within_half_the_byte_budget() -> None:
    for block_bytes in (1, 10_000, 50_000, 200_000, 10**9):
        run = MaskedRun(batch(LM, PREFIX, masks(), block_bytes=block_bytes), 11)
        seen = torch.zeros(5, 6, dtype=torch.long)
        for variants, rows in run._blocks(5, 6, 9, 8):
            seen[variants, rows] += 1
            size = (variants.stop - variants.start) * (rows.stop - rows.start) * 9 * (TOKENS + 11) * 8
            assert size <= block_bytes // 2 or size == 9 * (TOKENS + 11) * 8
        assert (seen == 1).all()


def test_feeding_tokens_in_other_chunks_changes_nothing() -> None:
    keep = masks(seed=4)
    whole = logprobs(keep, [ALL_FED])
    for fed in ([(token,) for token in ALL_FED], [ALL_FED[:4], ALL_FED[4:]], FED):
        close(logprobs(keep, fed), whole)


def test_a_run_changes_neither_the_prefix_nor_the_masks() -> None:
    prefix, keep = prefill(LM, Context(CONTEXT)).prefix, masks()
    before = [tensor.clone() for tensor in (*prefix.keys, *prefix.values, keep)]
    engine_logprobs(LM, prefix, keep, FED)
    assert all(map(torch.equal, (*prefix.keys, *prefix.values, keep), before))


def test_huge_logits_neither_overflow_nor_show_what_is_hidden() -> None:
    lm, keep = tiny("llama"), masks(3, seed=7)
    for layer in lm.model.model.layers:
        layer.self_attn.q_proj.weight.mul_(30_000)
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)), keep, FED)
    assert torch.isfinite(found).all()
    close(found, unpatched(keep, lm), 1e-7)


def test_float32_agrees_with_the_unpatched_model_to_1e_3() -> None:
    lm, keep = tiny("llama", torch.float32), masks(3, seed=8)
    close(engine_logprobs(lm, prefill(lm, Context(CONTEXT)), keep, FED), unpatched(keep, lm), 1e-3)


@pytest.mark.real_model
def test_masked_equals_gathered_on_the_embedded_model(smollm2: Loaded) -> None:
    lm = smollm2.lm
    text = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
    ids = tuple(smollm2.tokenizer.encode(text * 12, add_special_tokens=False)[:256])
    question = tuple(smollm2.tokenizer.encode("What colour is the grass?", add_special_tokens=False))
    scored = prefill(lm, Context(ids), [Knorm()])
    assert scored.prefix.cached == 256
    ranked = Ranking(scored.scores[Knorm()], torch.arange(256) < 4)
    keep = torch.stack([everything(1, 256, 30)[0], ranked.layer(64), ranked.global_(128)])
    found = engine_logprobs(lm, scored, keep, [question, (28,)])
    close(found, GatheredRun.of(lm, scored.prefix, keep).logprobs((*question, 28)))
    with torch.inference_mode():
        control = lm.model(torch.tensor([[*ids, *question, 28]]), use_cache=False).logits[0, 256:].log_softmax(-1)
    close(found[0], control, 1e-6)
