"""One tiny random-weight model of each family against the unpatched model, on contexts longer than its window."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GPT2Config,
    GPTNeoXConfig,
)

from harness.engine.adapter import FAMILIES, EngineError, LanguageModel, describe
from harness.engine.context import Context, PositionsExceeded, check_positions, out_of_memory
from harness.engine.decode import Question, decode
from harness.engine.prefill import prefill
from methods.base import ModelInfo
from methods.knorm import Knorm
from methods.kvzip_plus import KVzipPlus
from methods.random import Random
from tests.tiny import (
    ALL_FED,
    CONTEXT,
    FED,
    MODELS,
    PRUNABLE,
    SHAPE,
    batch,
    close,
    engine_logprobs,
    everything,
    greedy,
    hook_count,
    some_masks,
    tiny,
    unpatched_logits,
)

TOKENS = len(CONTEXT)  # the windows are 8
QUESTION = FED[0]  # longer than a window too


def whole_logits(lm: LanguageModel) -> torch.Tensor:
    """Logits of the unpatched model for what is fed after the context, in one forward without a cache."""
    with torch.inference_mode():
        return lm.model(torch.tensor([CONTEXT + ALL_FED]), use_cache=False).logits[0, TOKENS:]


def assert_control_is_the_unpatched_model(lm: LanguageModel) -> None:
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)).prefix, everything(1, TOKENS, lm.info.layers), FED)[0]
    close(found, whole_logits(lm).log_softmax(-1))


def assert_close_to_unpatched(lm: LanguageModel, keep: torch.Tensor, found: torch.Tensor) -> None:
    """With a mask of its own for each layer and head."""
    for own, mask in zip(found, keep, strict=True):
        close(own, unpatched_logits(lm, CONTEXT + ALL_FED, TOKENS, mask).log_softmax(-1))


@pytest.mark.parametrize("family", MODELS)
def test_the_prefill_and_the_control_equal_the_unpatched_model(family: str) -> None:
    lm = tiny(family)
    prefix = prefill(lm, Context(CONTEXT), [Knorm(), Random()]).prefix
    with torch.inference_mode():
        hidden = lm.decoder(torch.tensor([CONTEXT]), use_cache=False).last_hidden_state[0]
    close(prefix.last_hidden, hidden)
    assert_control_is_the_unpatched_model(lm)
    answer = decode(batch(lm, prefix, everything(1, TOKENS, lm.info.layers)), Question(QUESTION, 20))[0]
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
    assert scored.scores[KVzipPlus()].shape == (lm.info.layers, 3, TOKENS)
    for own, layer in zip(scored.scores[Knorm()], PRUNABLE[family], strict=True):
        assert torch.equal(own, -scored.prefix.keys[layer].float().norm(dim=-1))


@pytest.mark.parametrize("window", [1, 2, 8, 44, 45, 46, 200])
def test_a_window_of_any_size_equals_the_unpatched_model(window: int) -> None:
    lm = tiny("gemma3", sliding_window=window)
    keep = some_masks(2, 2, 3, TOKENS, seed=2)
    found = engine_logprobs(lm, prefill(lm, Context(CONTEXT)).prefix, keep, FED)
    assert_close_to_unpatched(lm, keep, found)


@pytest.mark.parametrize("family", ["llama", "qwen2_sliding", "gemma3", "mistral_sliding"])
def test_an_empty_context_equals_the_unpatched_model(family: str) -> None:
    lm = tiny(family)
    empty = batch(lm, prefill(lm, Context(()), [Knorm()]), everything(2, 0, lm.info.layers))
    assert [list(answer.ids) for answer in decode(empty, Question(QUESTION, 12))] == [
        greedy(lm.model, QUESTION, 12)
    ] * 2


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
    vision = {**SMALL, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration._from_config(config, attn_implementation="sdpa").double()
    lm = LanguageModel(model, "tiny-gemma3")
    assert lm.prunable == PRUNABLE["gemma3"] and lm.info == describe(config, "tiny-gemma3")
    assert_control_is_the_unpatched_model(lm)
    assert hook_count(model) == 0


SMALL = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
OTHERS = {
    "gpt2": GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9),
    "gpt_neox": GPTNeoXConfig(num_hidden_layers=1, **SMALL),
    "gemma2": Gemma2Config(num_hidden_layers=2, num_key_value_heads=1, head_dim=4, **SMALL),
}


@pytest.mark.parametrize("family", OTHERS)
def test_an_unsupported_family_is_refused_with_the_list_of_supported_ones(family: str) -> None:
    with pytest.raises(EngineError, match=f"'{family}'; supported: {', '.join(FAMILIES)}"):
        LanguageModel(AutoModelForCausalLM.from_config(OTHERS[family]), "some/model")


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("gemma3", {"attn_logit_softcapping": 50.0}, "'tiny-gemma3' soft-caps its attention"),
        ("gemma3", {"use_bidirectional_attention": True}, "'tiny-gemma3' attends in both directions"),
        ("llama", {"rope_parameters": DYNAMIC}, "dynamic RoPE"),
    ],
)
def test_what_the_engine_does_not_compute_is_refused(family: str, change: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        tiny(family, **change)


LONGROPE: dict[str, object] = {"rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
LONGROPE |= {"short_factor": [1.0] * 3, "long_factor": [4.0] * 3}


def test_longrope_may_not_leave_the_angles_of_its_cached_keys() -> None:
    lm = tiny("phi3", hidden_size=54, head_dim=6, rope_parameters=LONGROPE, original_max_position_embeddings=64)
    assert lm.obstacle(40, 64) is None  # short angles throughout
    assert lm.obstacle(65, 100) is None  # long ones throughout
    with pytest.raises(PositionsExceeded, match="crosses position 64"):
        check_positions(lm, 40, 65, "prompt and answer")


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_distinguished_from_other_errors(error: Exception, memory: bool) -> None:
    assert out_of_memory(error) is memory
