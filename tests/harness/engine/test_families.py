"""One tiny random-weight model of each family against the unpatched model, on contexts longer than its window."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
)

from harness.engine.adapter import FAMILIES, EngineError, LanguageModel, describe
from harness.engine.context import Context
from harness.engine.decode import Question, decode
from harness.engine.prefill import prefill
from methods.base import ModelInfo
from methods.knorm import Knorm
from methods.kvzip_plus import KVzipPlus
from methods.random import Random
from tests.tiny import (
    MODELS,
    PRUNABLE,
    SHAPE,
    batch,
    engine_logprobs,
    greedy,
    hook_count,
    some_ids,
    some_masks,
    tiny,
    unpatched_logits,
)

TOKENS = 45  # the windows are 8
CONTEXT = some_ids(TOKENS)
QUESTION = some_ids(11, seed=1)  # longer than a window too
FED = (QUESTION, (5,), (6, 7), (8,))
ALL_FED = tuple(token for chunk in FED for token in chunk)


def everything(lm: LanguageModel, variants: int = 1) -> torch.Tensor:
    return torch.ones(variants, lm.info.layers, lm.info.kv_heads, TOKENS, dtype=torch.bool)


def whole_logits(lm: LanguageModel) -> torch.Tensor:
    """Logits of the unpatched model for what is fed after the context, in one forward without a cache."""
    with torch.inference_mode():
        return lm.model(torch.tensor([CONTEXT + ALL_FED]), use_cache=False).logits[0, TOKENS:]


def assert_control_is_the_unpatched_model(lm: LanguageModel) -> None:
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)).prefix, everything(lm), FED)[0]
    torch.testing.assert_close(found, whole_logits(lm).log_softmax(-1), rtol=0, atol=1e-9)


def assert_close_to_unpatched(lm: LanguageModel, keep: torch.Tensor, found: torch.Tensor) -> None:
    """With a mask of its own for each layer and head."""
    for own, mask in zip(found, keep, strict=True):
        expected = unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, mask).log_softmax(-1)
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", MODELS)
def test_the_prefill_and_the_control_equal_the_unpatched_model(family: str) -> None:
    lm = tiny(family)
    prefix = prefill(lm, Context(CONTEXT), [Knorm(), Random()]).prefix
    with torch.inference_mode():
        hidden = lm.decoder(torch.tensor([CONTEXT]), use_cache=False).last_hidden_state[0]
    torch.testing.assert_close(prefix.last_hidden, hidden, rtol=0, atol=1e-9)
    assert_control_is_the_unpatched_model(lm)
    answer = decode(batch(lm, prefix, everything(lm)), Question(QUESTION, 20))[0]
    assert list(answer.ids) == greedy(lm.model, CONTEXT + QUESTION, 20)
    assert len(set(answer.ids)) > 2 and hook_count(lm.model) == 0


@pytest.mark.parametrize("family", MODELS)
def test_pruned_variants_equal_the_unpatched_model_with_masks_of_its_own(family: str) -> None:
    lm = tiny(family)
    keep = some_masks(3, lm.info.layers, 3, TOKENS, seed=1)
    keep[2] = False
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)).prefix, keep, FED)
    assert_close_to_unpatched(lm, keep, found)
    differs = (found[0] - found[2]).abs().max() > 1e-3
    assert bool(differs) == bool(PRUNABLE[family])


@pytest.mark.parametrize("family", MODELS)
def test_layers_with_a_sliding_window_are_not_counted_scored_or_pruned(family: str) -> None:
    lm = tiny(family)
    assert lm.prunable == PRUNABLE[family]
    assert [index for index, window in enumerate(lm.windows) if window is None] == PRUNABLE[family]
    assert {window for window in lm.windows if window is not None} <= {8}
    assert lm.info == describe(lm.config, lm.name)
    assert lm.info == ModelInfo(lm.name, len(PRUNABLE[family]), 9, 3, 8, lm.config.hidden_size)
    scored = prefill(lm, Context(CONTEXT, 2, (1,), lambda text: [3, 4]), [Knorm(), KVzipPlus()])
    assert scored.failed == {} and set(scored.scores) == {Knorm(), KVzipPlus()}
    assert len(scored.prefix.keys) == len(lm.attention)
    for scores in scored.scores.values():
        assert scores.shape == (lm.info.layers, 3, TOKENS)


def test_the_scores_of_place_l_are_those_of_the_lth_prunable_layer() -> None:
    lm = tiny("gemma3")
    scored = prefill(lm, Context(CONTEXT), [Knorm()])
    for place, layer in enumerate(PRUNABLE["gemma3"]):
        expected = -scored.prefix.keys[layer].float().norm(dim=-1)
        assert torch.equal(scored.scores[Knorm()][place], expected)


@pytest.mark.parametrize("window", [1, 2, 8, 44, 45, 46, 200])
def test_a_window_of_any_size_equals_the_unpatched_model(window: int) -> None:
    lm = tiny("gemma3", sliding_window=window)
    keep = some_masks(2, 2, 3, TOKENS, seed=2)
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)).prefix, keep, FED)
    assert_close_to_unpatched(lm, keep, found)


@pytest.mark.parametrize("family", ["qwen2_sliding", "gemma3", "mistral_sliding"])
def test_an_empty_context_equals_the_unpatched_model(family: str) -> None:
    lm = tiny(family)
    keep = torch.ones(1, lm.info.layers, 3, 0, dtype=torch.bool)
    answer = decode(batch(lm, prefill(lm, Context(()), [Knorm()]), keep), Question(QUESTION, 12))[0]
    assert list(answer.ids) == greedy(lm.model, QUESTION, 12)


def test_a_model_without_prunable_layers_decodes_one_row_for_all_variants() -> None:
    lm = tiny("mistral_sliding")
    scored = prefill(lm, Context(CONTEXT), [Knorm()])
    assert lm.info.layers == 0
    answers = decode(batch(lm, scored, torch.ones(3, 0, 3, TOKENS, dtype=torch.bool)), Question(QUESTION, 6))
    assert [list(answer.ids) for answer in answers] == [greedy(lm.model, CONTEXT + QUESTION, 6)] * 3


@pytest.mark.parametrize("family", ["llama", "mistral", "phi3"])
def test_a_stray_key_in_a_configuration_does_not_make_or_unmake_a_window(family: str) -> None:
    """Llama has no window and Mistral and Phi3 no layer types, whatever their configuration says."""
    stray = {"sliding_window": 8} if family == "llama" else {"sliding_window": 8, "layer_types": ["full_attention"] * 3}
    lm = tiny(family, **stray)
    assert lm.info.layers == (3 if family == "llama" else 0)
    assert_control_is_the_unpatched_model(lm)


def test_final_soft_capping_is_honoured() -> None:
    lm = tiny("gemma3", final_logit_softcapping=0.5)
    assert whole_logits(lm).abs().max() <= 0.5
    assert_control_is_the_unpatched_model(lm)


def test_gemma3_with_a_vision_tower_is_served_by_its_text_model() -> None:
    text = {**SHAPE, **MODELS["gemma3"][1], "tie_word_embeddings": False}
    vision = {**SMALL, "num_hidden_layers": 1, "image_size": 28}
    config = Gemma3Config(text_config=text, vision_config={**vision, "patch_size": 14}, tie_word_embeddings=False)
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration._from_config(config, attn_implementation="sdpa").to(torch.float64)
    lm = LanguageModel(model, "tiny-gemma3")
    assert lm.prunable == PRUNABLE["gemma3"] and lm.info == describe(config, "tiny-gemma3")
    assert_control_is_the_unpatched_model(lm)
    assert hook_count(model) == 0


SMALL = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
OTHERS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9)),
    "gpt_neox": (GPTNeoXForCausalLM, GPTNeoXConfig(num_hidden_layers=1, **SMALL)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(num_hidden_layers=2, num_key_value_heads=1, head_dim=4, **SMALL)),
}


@pytest.mark.parametrize("family", OTHERS)
def test_an_unsupported_family_is_refused_with_the_list_of_supported_ones(family: str) -> None:
    model_class, config = OTHERS[family]
    with pytest.raises(EngineError, match=f"'{family}'; supported: {', '.join(FAMILIES)}"):
        LanguageModel(model_class(config), "some/model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_logit_softcapping": 50.0}, "'tiny-gemma3' soft-caps its attention"),
        ({"use_bidirectional_attention": True}, "'tiny-gemma3' attends in both directions"),
    ],
)
def test_attention_that_the_engines_do_not_compute_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        tiny("gemma3", **change)


def test_the_shape_of_a_model_is_known_from_its_configuration() -> None:
    config = Gemma3TextConfig(**{**SHAPE, **MODELS["gemma3"][1]})
    assert describe(config, "x") == ModelInfo("x", 2, 9, 3, 8, 54)
    assert describe(config, "x").group == 3
