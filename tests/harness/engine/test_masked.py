"""The masked engine in float64: hidden pairs are as good as gone, and the batch changes no answer."""

from __future__ import annotations

from decimal import Decimal

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context, Prefix
from harness.engine.decode import Question, decode
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from harness.models.loading import Loaded
from methods.budgets import Ranking, number_kept
from methods.knorm import Knorm
from methods.kvzip import KVzip
from tests.tiny import Plain, engine_logprobs, some_ids, some_masks, tiny, unpatched_logits

TOKENS = 45
CONTEXT = some_ids(TOKENS)
FED = (some_ids(6, seed=1), (3,), (77,), (14, 15), (60,))
ALL_FED = tuple(token for chunk in FED for token in chunk)


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny("llama")


@pytest.fixture(scope="module")
def prefix(lm: LanguageModel) -> Prefix:
    return prefill(lm, Context(CONTEXT)).prefix


def masks(variants: int = 5, seed: int = 0) -> Tensor:
    """Random masks, the first of which keeps everything."""
    keep = some_masks(variants, 3, 3, TOKENS, seed)
    keep[0] = True
    return keep


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_masked_equals_physically_gathered(lm: LanguageModel, prefix: Prefix) -> None:
    keep, plain = masks(), Plain(lm.model)
    _, dense = plain.forward(CONTEXT)
    found = engine_logprobs(lm, prefix, keep, FED)
    for variant in range(5):
        past = plain.gathered(dense, keep[variant])
        assert len({len(keys) for layer in past for keys, _ in layer}) > (1 if variant else 0)
        close(found[variant], plain.logprobs(ALL_FED, TOKENS, past))


def test_masked_equals_the_unpatched_model_with_a_mask_for_each_layer_and_head(
    lm: LanguageModel, prefix: Prefix
) -> None:
    keep = masks(seed=1)
    found = engine_logprobs(lm, prefix, keep, FED)
    for variant in range(5):
        close(found[variant], unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, keep[variant]).log_softmax(-1))


@pytest.mark.parametrize("budget", ["head", "layer", "global"])
def test_masks_made_by_a_budget_equal_gathered_pairs_too(lm: LanguageModel, budget: str) -> None:
    context = Context(CONTEXT, 3, (1, 2), lambda text: [8, 9])
    scored = prefill(lm, context, [Knorm(), KVzip()])
    plain = Plain(lm.model)
    _, dense = plain.forward(CONTEXT)
    kept = number_kept(TOKENS, Decimal("0.75"))
    rankings = [Ranking(scores, torch.arange(TOKENS) < 3) for scores in scored.scores.values()]
    keep = torch.stack([{"head": r.head, "layer": r.layer, "global": r.global_}[budget](kept) for r in rankings])
    found = engine_logprobs(lm, scored.prefix, keep, FED)
    for variant in range(2):
        close(found[variant], plain.logprobs(ALL_FED, TOKENS, plain.gathered(dense, keep[variant])))


def test_a_batch_of_variants_equals_single_runs(lm: LanguageModel, prefix: Prefix) -> None:
    keep = masks(7, seed=2)
    together = engine_logprobs(lm, prefix, keep, FED)
    for variant in range(7):
        close(together[variant], engine_logprobs(lm, prefix, keep[variant : variant + 1], FED)[0])


@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3_sliding"])
@pytest.mark.parametrize("block_bytes", [1, 2 * 3 * 9 * 56 * 8, 2 * 8 * 9 * 56 * 8, 2 * 13 * 9 * 56 * 8])
def test_splitting_variants_and_rows_to_the_byte_budget_changes_nothing(family: str, block_bytes: int) -> None:
    lm = tiny(family)  # blocks of 1, 3, 8 and 13 query rows
    prefix = prefill(lm, Context(CONTEXT)).prefix
    keep = some_masks(5, lm.info.layers, 3, TOKENS, seed=3)
    whole = engine_logprobs(lm, prefix, keep, FED)
    close(engine_logprobs(lm, prefix, keep, FED, block_bytes=block_bytes), whole)


def test_blocks_cover_every_variant_and_row_once_within_half_the_byte_budget(lm: LanguageModel, prefix: Prefix) -> None:
    for block_bytes in (1, 10_000, 50_000, 200_000, 10**9):
        run = MaskedRun(lm, prefix, masks(), 11, block_bytes)
        seen = torch.zeros(5, 6, dtype=torch.long)
        for variants, rows in run._blocks(5, 6, 9, 8):
            seen[variants, rows] += 1
            size = (variants.stop - variants.start) * (rows.stop - rows.start) * 9 * (TOKENS + 11) * 8
            assert size <= block_bytes // 2 or size == 9 * (TOKENS + 11) * 8
        assert (seen == 1).all()


def test_feeding_tokens_in_other_chunks_changes_nothing(lm: LanguageModel, prefix: Prefix) -> None:
    keep = masks(seed=4)
    whole = engine_logprobs(lm, prefix, keep, [ALL_FED])
    for fed in ([(token,) for token in ALL_FED], [ALL_FED[:4], ALL_FED[4:]], FED):
        close(engine_logprobs(lm, prefix, keep, fed), whole)


def test_heads_and_layers_whose_whole_prefix_is_hidden_work(lm: LanguageModel, prefix: Prefix) -> None:
    keep = masks(3, seed=5)
    keep[0] = False
    keep[1, 1] = False
    keep[2, :, 2] = False
    found = engine_logprobs(lm, prefix, keep, FED)
    plain = Plain(lm.model)
    _, dense = plain.forward(CONTEXT)
    assert torch.isfinite(found).all()
    for variant in range(3):
        close(found[variant], plain.logprobs(ALL_FED, TOKENS, plain.gathered(dense, keep[variant])))


def test_hiding_one_single_pair_is_seen(lm: LanguageModel, prefix: Prefix) -> None:
    keep = torch.ones(2, 3, 3, TOKENS, dtype=torch.bool)
    keep[1, 2, 1, 20] = False
    found = engine_logprobs(lm, prefix, keep, FED)
    plain = Plain(lm.model)
    _, dense = plain.forward(CONTEXT)
    close(found[1], plain.logprobs(ALL_FED, TOKENS, plain.gathered(dense, keep[1])))
    assert (found[0] - found[1]).abs().max() > 1e-6


def test_an_empty_prefix_is_the_model_on_the_question_alone(lm: LanguageModel) -> None:
    empty = prefill(lm, Context(()), [Knorm()])
    found = engine_logprobs(lm, empty.prefix, torch.ones(2, 3, 3, 0, dtype=torch.bool), FED)
    with torch.inference_mode():
        expected = lm.model(torch.tensor([ALL_FED]), use_cache=False).logits[0].log_softmax(-1)
    close(found[0], expected)
    close(found[1], expected)


def test_the_question_starts_at_the_uncompressed_length(
    lm: LanguageModel, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions: list[list[int]] = []
    forward = lm.decoder.forward

    def spy(**kwargs: object) -> object:
        given = kwargs["position_ids"]
        assert isinstance(given, Tensor)
        positions.append(given[0].tolist())
        return forward(**kwargs)

    monkeypatch.setattr(lm.decoder, "forward", spy)
    keep = torch.zeros(1, 3, 3, TOKENS, dtype=torch.bool)
    keep[..., :2] = True
    decode(lm, prefix, keep, Question((7, 8, 9), 3))
    assert positions == [[TOKENS, TOKENS + 1, TOKENS + 2], [TOKENS + 3], [TOKENS + 4]]


def test_variants_that_leave_the_batch_do_not_change_the_others(lm: LanguageModel, prefix: Prefix) -> None:
    keep = masks(4, seed=6)
    with torch.inference_mode(), lm.engaged():
        run = MaskedRun(lm, prefix, keep, len(ALL_FED))
        run.advance(torch.tensor([FED[0]]).expand(4, -1))
        run.select([3, 1])
        assert run.variants == 2
        rest = torch.cat([run.advance(torch.tensor([chunk]).expand(2, -1)) for chunk in FED[1:]], dim=1)
    whole = engine_logprobs(lm, prefix, keep, FED)[:, len(FED[0]) :]
    close(lm.logits(rest).log_softmax(-1), whole[[3, 1]])


def test_a_run_changes_neither_the_prefix_nor_the_masks(lm: LanguageModel) -> None:
    prefix, keep = prefill(lm, Context(CONTEXT)).prefix, masks()
    before = [tensor.clone() for tensor in (*prefix.keys, *prefix.values, keep)]
    engine_logprobs(lm, prefix, keep, FED)
    for now, then in zip((*prefix.keys, *prefix.values, keep), before, strict=True):
        assert torch.equal(now, then)


def test_huge_logits_neither_overflow_nor_show_what_is_hidden() -> None:
    lm = tiny("llama")
    for layer in lm.model.model.layers:
        layer.self_attn.q_proj.weight.mul_(30_000)
    prefix = prefill(lm, Context(CONTEXT)).prefix
    keep = masks(3, seed=7)
    found = engine_logprobs(lm, prefix, keep, FED)
    assert torch.isfinite(found).all()
    for variant in range(3):
        expected = unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, keep[variant]).log_softmax(-1)
        torch.testing.assert_close(found[variant], expected, rtol=0, atol=1e-7)


def test_float32_agrees_with_the_unpatched_model_to_1e_3() -> None:
    lm = tiny("llama", torch.float32)
    keep = masks(3, seed=8)
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)).prefix, keep, FED)
    for variant in range(3):
        expected = unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, keep[variant]).log_softmax(-1)
        torch.testing.assert_close(found[variant], expected, rtol=0, atol=1e-3)


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
    found = engine_logprobs(lm, scored.prefix, keep, [question, (28,)])
    plain = Plain(lm.model)
    cache = list(zip(scored.prefix.keys, scored.prefix.values, strict=True))
    for variant in range(3):
        past = [
            [(keys[h][mask[h]], values[h][mask[h]]) for h in range(3)]
            for (keys, values), mask in zip(cache, keep[variant], strict=True)
        ]
        close(found[variant], plain.logprobs((*question, 28), 256, past))
    with torch.inference_mode():
        control = lm.model(torch.tensor([[*ids, *question, 28]]), use_cache=False).logits[0, 256:].log_softmax(-1)
    torch.testing.assert_close(found[0], control, rtol=0, atol=1e-6)
