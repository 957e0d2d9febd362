"""The masked engine in float64: hidden pairs are as good as gone, and the batch changes no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.conformance.reference_cache import GatheredRun
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context, Prefix
from harness.engine.decode import Question, decode
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from harness.models.loading import Loaded
from methods.budgets import Ranking, number_kept
from methods.knorm import Knorm
from methods.kvzip import KVzip
from tests.tiny import batch, engine_logprobs, some_ids, some_masks, tiny, unpatched_logits

TOKENS = 45
CONTEXT = some_ids(TOKENS)
FED = (some_ids(6, seed=1), (3,), (77,), (14, 15), (60,))
ALL_FED = tuple(token for chunk in FED for token in chunk)
LM = tiny("llama")
PREFIX = prefill(LM, Context(CONTEXT)).prefix


def masks(variants: int = 5, seed: int = 0) -> Tensor:
    """Random masks, the first of which keeps everything."""
    keep = some_masks(variants, 3, 3, TOKENS, seed)
    keep[0] = True
    return keep


def logprobs(keep: Tensor, fed: Sequence[Sequence[int]] = FED, **more: Any) -> Tensor:
    return engine_logprobs(LM, PREFIX, keep, fed, **more)


def gathered(keep: Tensor, lm: LanguageModel = LM, prefix: Prefix = PREFIX) -> Tensor:
    """What caches say whose pairs are really gone."""
    return GatheredRun.of(lm, prefix, keep).logprobs(ALL_FED)


def unpatched(keep: Tensor, lm: LanguageModel = LM) -> Tensor:
    """What the unpatched model says with a mask for each layer and head."""
    rows = [unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, mask) for mask in keep]
    return torch.stack(rows).log_softmax(-1)


def close(one: Tensor, other: Tensor, atol: float = 1e-9) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


def whole_heads_and_layers() -> Tensor:
    keep = masks(3, seed=5)
    keep[0] = False
    keep[1, 1] = False
    keep[2, :, 2] = False
    return keep


def one_single_pair() -> Tensor:
    keep = torch.ones(2, 3, 3, TOKENS, dtype=torch.bool)
    keep[1, 2, 1, 20] = False
    return keep


@pytest.mark.parametrize("reference", [gathered, unpatched])
@pytest.mark.parametrize("make", [masks, whole_heads_and_layers, one_single_pair])
def test_what_a_mask_hides_is_gone(make: Callable[[], Tensor], reference: Callable[[Tensor], Tensor]) -> None:
    keep = make()
    found = logprobs(keep)
    close(found, reference(keep))
    assert (found[0] - found[1]).abs().max() > 1e-6  # and the masks matter


@pytest.mark.parametrize("budget", ["head", "layer", "global"])
def test_masks_made_by_a_budget_equal_gathered_pairs_too(budget: str) -> None:
    scored = prefill(LM, Context(CONTEXT, 3, (1, 2), lambda text: [8, 9]), [Knorm(), KVzip()])
    kept = number_kept(TOKENS, Decimal("0.75"))
    rankings = [Ranking(scores, torch.arange(TOKENS) < 3) for scores in scored.scores.values()]
    keep = torch.stack([{"head": r.head, "layer": r.layer, "global": r.global_}[budget](kept) for r in rankings])
    close(engine_logprobs(LM, scored, keep, FED), gathered(keep))


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


def test_an_empty_prefix_is_the_model_on_the_question_alone() -> None:
    found = engine_logprobs(LM, prefill(LM, Context(()), [Knorm()]), torch.ones(2, 3, 3, 0, dtype=torch.bool), FED)
    with torch.inference_mode():
        expected = LM.model(torch.tensor([ALL_FED]), use_cache=False).logits[0].log_softmax(-1)
    close(found, expected.expand(2, -1, -1))


def test_the_question_starts_at_the_uncompressed_length(monkeypatch: pytest.MonkeyPatch) -> None:
    positions: list[list[int]] = []
    forward = LM.decoder.forward

    def spy(**given: Any) -> object:
        positions.append(given["position_ids"][0].tolist())
        return forward(**given)

    monkeypatch.setattr(LM.decoder, "forward", spy)
    keep = torch.zeros(1, 3, 3, TOKENS, dtype=torch.bool)
    keep[..., :2] = True
    decode(batch(LM, PREFIX, keep), Question((7, 8, 9), 3))
    assert positions == [[TOKENS, TOKENS + 1, TOKENS + 2], [TOKENS + 3], [TOKENS + 4]]


def test_variants_that_leave_the_batch_do_not_change_the_others() -> None:
    keep = masks(4, seed=6)
    run = MaskedRun(batch(LM, PREFIX, keep), len(ALL_FED))
    with run.engaged():
        run.advance(torch.tensor([FED[0]]).expand(4, -1))
        run.select([3, 1])
        assert run.variants == 2
        rest = torch.cat([run.advance(torch.tensor([chunk]).expand(2, -1)) for chunk in FED[1:]], dim=1)
        close(LM.logits(rest).log_softmax(-1), logprobs(keep)[[3, 1], len(FED[0]) :])


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
    keep = torch.stack([torch.ones(30, 3, 256, dtype=torch.bool), ranked.layer(64), ranked.global_(128)])
    found = engine_logprobs(lm, scored, keep, [question, (28,)])
    close(found, GatheredRun.of(lm, scored.prefix, keep).logprobs((*question, 28)))
    with torch.inference_mode():
        control = lm.model(torch.tensor([[*ids, *question, 28]]), use_cache=False).logits[0, 256:].log_softmax(-1)
    close(found[0], control, 1e-6)
