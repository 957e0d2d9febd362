"""One prefill, all methods observing: nothing they do shows in the model, the cache or the hidden states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from harness.engine.adapter import EngineError, LanguageModel
from harness.engine.context import Context
from harness.engine.decode import Question, decode
from harness.engine.eviction import Policy
from harness.engine.prefill import prefill
from methods import registry
from methods.base import Method, Observation, Pass, Protection
from methods.h2o import H2O
from methods.knorm import Knorm
from methods.kvzip import KVzip
from methods.kvzip_plus import KVzipPlus
from tests.tiny import batch, everything, hook_count, some_ids, tiny

NAMES = "full streaming_llm random tova observed_attention expected_attention snapkv pyramidkv keydiff"
METHODS: list[Method] = [registry.build(name, {}) for name in NAMES.split()]
METHODS += [Knorm(), H2O(), KVzip(chunk=16), KVzipPlus(chunk=16)]
TOKENS = 50


def context(tokens: int = TOKENS, prefix: int = 4) -> Context:
    return Context(some_ids(tokens), prefix, (1, 2, 3), lambda text: [5, 6, 7])


LM = tiny("llama")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_with_all_methods_observing_hidden_states_and_cache_are_those_without_and_the_unpatched_models(
    dtype: torch.dtype, tolerance: float
) -> None:
    lm = tiny("llama", dtype)
    own, without = prefill(lm, context(), METHODS).prefix, prefill(lm, context()).prefix
    cache = DynamicCache(config=lm.config)
    with torch.inference_mode():
        hidden = lm.decoder(torch.tensor([context().ids]), cache=cache, use_cache=True).last_hidden_state[0]
    assert torch.equal(own.last_hidden, without.last_hidden)
    torch.testing.assert_close(own.last_hidden, hidden, rtol=tolerance, atol=tolerance)
    for index, kept in enumerate(cache.layers):
        assert torch.equal(own.keys[index], without.keys[index])
        assert torch.equal(own.values[index], without.values[index])
        torch.testing.assert_close(own.keys[index], kept.keys[0], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(own.values[index], kept.values[0], rtol=tolerance, atol=tolerance)
        assert own.keys[index].shape == (lm.info.kv_heads, TOKENS, lm.info.head_size)


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral_sliding"])
@pytest.mark.parametrize("block_bytes", [1, 3000, 100_000])
def test_the_byte_budget_changes_neither_cache_nor_scores(family: str, block_bytes: int) -> None:
    lm = tiny(family)
    whole, split = (prefill(lm, context(), METHODS, block_bytes=size) for size in (2**29, block_bytes))
    torch.testing.assert_close(split.prefix.last_hidden, whole.prefix.last_hidden, rtol=0, atol=1e-9)
    for parts in (lambda run: run.prefix.keys, lambda run: run.prefix.values):
        for one, other in zip(parts(split), parts(whole), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    for method, scores in whole.scores.items():
        torch.testing.assert_close(split.scores[method], scores, rtol=1e-6, atol=2e-6)  # float32 sums


def test_a_method_named_twice_is_scored_once() -> None:
    scored = prefill(LM, context(), [Knorm(), Knorm(), KVzip(), KVzip(), KVzip(chunk=9)])
    assert list(scored.scores) == [Knorm(), KVzip(), KVzip(chunk=9)]
    assert all(scores.shape[0] == 3 for scores in scored.scores.values())


@pytest.mark.parametrize("tokens", [0, 1, 2, TOKENS])
def test_every_method_but_the_control_has_finite_float32_scores_of_each_pair(tokens: int) -> None:
    scored = prefill(LM, context(tokens, prefix=0), METHODS)
    assert scored.prefix.cached == tokens and scored.failed == {} and set(scored.scores) == set(METHODS[1:])
    assert [keys.shape for keys in scored.prefix.keys] == [(3, tokens, 8)] * 3
    for scores in scored.scores.values():
        assert scores.dtype == torch.float32 and scores.shape == (3, 3, tokens) and torch.isfinite(scores).all()


class Sizes(TorchDispatchMode):
    """Remembers the shapes of all tensors that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else [out]:
            if isinstance(made, Tensor):
                self.shapes.append(tuple(made.shape))
        return out


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_no_matrix_of_all_tokens_by_all_tokens_is_ever_made(family: str) -> None:
    lm, tokens = tiny(family, torch.float32, max_position_embeddings=1024), 400
    with torch.inference_mode(), Sizes() as sizes:
        scored = prefill(lm, context(tokens), [*METHODS, KVzip(), KVzipPlus()], block_bytes=2**18)
    assert len(sizes.shapes) > 100 and len(scored.scores) == len(METHODS) - 1 + 2
    for shape in sizes.shapes:
        assert sum(size >= tokens for size in shape) < 2, shape


def left_behind(lm: LanguageModel) -> tuple[int, str, Tensor]:
    """What a patch would change: hooks, the attention function's name, and the model's own hidden states."""
    with torch.inference_mode():
        hidden = lm.decoder(torch.tensor([context().ids]), use_cache=False).last_hidden_state[0]
    return hook_count(lm.model), lm.config._attn_implementation, hidden


def assert_as_before(lm: LanguageModel, before: tuple[int, str, Tensor]) -> None:
    hooks, name, hidden = left_behind(lm)
    assert (hooks, name) == before[:2] == (0, "sdpa")
    assert torch.equal(hidden, before[2])


@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3"])
def test_prefill_and_decode_leave_no_hook_and_no_patch(family: str) -> None:
    lm = tiny(family)
    before = left_behind(lm)
    modules = {name: (type(module), module.forward.__func__) for name, module in lm.model.named_modules()}
    scored = prefill(lm, context(), METHODS)
    policies = [None, Policy(H2O(), Protection(), keep_tokens=12)]
    decode(batch(lm, scored, everything(2, TOKENS, lm.info.layers), policies=policies), Question((1, 2), 3))
    assert_as_before(lm, before)
    assert modules == {name: (type(module), module.forward.__func__) for name, module in lm.model.named_modules()}
    assert not any("forward" in vars(module) for module in lm.model.modules())


class Broken(KVzip):
    """Fails in a chosen layer of the prefill or of its pass."""

    def score(self, seen: Observation) -> Tensor:
        if BREAK["where"] == "prefill" and seen.layer == 1:
            raise BREAK["error"]
        return super().score(seen)

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        if BREAK["where"] == "pass" and seen.layer == 1:
            raise BREAK["error"]
        return super().score_pass(seen, run)


BREAK: dict[str, Any] = {}


@pytest.mark.parametrize("where", ["prefill", "pass"])
def test_a_method_that_raises_fails_alone_and_leaves_nothing_on_the_model(where: str) -> None:
    before = left_behind(LM)
    BREAK.update(where=where, error=ZeroDivisionError("no luck"))
    scored = prefill(LM, context(), [Broken(), Knorm(), KVzip()])
    assert_as_before(LM, before)
    assert list(scored.failed) == [Broken()] and scored.failed[Broken()].status == "error"
    assert "no luck" in scored.failed[Broken()].reason
    alone = prefill(LM, context(), [Knorm(), KVzip()])
    assert list(scored.scores) == list(alone.scores)
    for method, scores in alone.scores.items():
        assert torch.equal(scored.scores[method], scores)
    assert torch.equal(scored.prefix.last_hidden, alone.prefix.last_hidden)


@pytest.mark.parametrize("where", ["prefill", "pass"])
def test_an_interrupt_inside_a_method_leaves_nothing_on_the_model(where: str) -> None:
    before = left_behind(LM)
    BREAK.update(where=where, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        prefill(LM, context(), [Knorm(), Broken()])
    assert_as_before(LM, before)


def test_a_pass_beyond_the_models_positions_fails_its_methods_only() -> None:
    lm = tiny("llama", max_position_embeddings=64)
    scored = prefill(lm, context(), [Knorm(), KVzip()])
    assert list(scored.scores) == [Knorm()]
    assert scored.failed[KVzip()].status == "truncated"
    assert "102 positions" in scored.failed[KVzip()].reason and "has 64" in scored.failed[KVzip()].reason


def test_the_attention_function_outside_a_run_says_so() -> None:
    with LM.engaged(), pytest.raises(EngineError, match="outside an engine run"):
        LM.decoder(torch.tensor([[1, 2]]), use_cache=False)
