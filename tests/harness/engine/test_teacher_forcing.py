"""Teacher forcing in float64 against the unpatched model, against caches whose pairs are gone, and against itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context, Scored
from harness.engine.decode import Question, decode
from harness.engine.eviction import Policy
from harness.engine.prefill import prefill
from harness.engine.teacher_forcing import Reading, Readings, compare, read_all
from methods import registry
from methods.base import Protection
from tests.tiny import batch, close, engine_logprobs, everything, some_ids, some_masks, tiny, unpatched_logits

TOKENS = 37
CONTEXT, QUESTION, TARGET = some_ids(TOKENS), some_ids(5, seed=1), some_ids(11, seed=2)
LM = tiny("llama")
SCORED = prefill(LM, Context(CONTEXT))


def some_keep(variants: int = 4, lm: LanguageModel = LM) -> Tensor:
    return some_masks(variants, lm.info.layers, lm.info.kv_heads, TOKENS, seed=3)


def read(keep: Tensor, scored: Scored = SCORED, **more: Any) -> Readings:
    return read_all(batch(LM, scored, keep, **more), QUESTION, TARGET)


def equal(found: Reading, wanted: Reading) -> None:
    close(found.kl, wanted.kl.to(found.kl))
    close(found.nll, wanted.nll.to(found.nll))
    assert torch.equal(found.same, wanted.same)


def by_hand(full: Tensor, own: Tensor) -> Reading:
    """The figures from logits ``[n, vocabulary]``, token by token and in plain Python's arithmetic."""
    kl, same, nll = [], [], []
    for one, other, token in zip(full.softmax(-1).tolist(), own.softmax(-1).tolist(), TARGET, strict=True):
        kl.append(sum(p * math.log(p / q) for p, q in zip(one, other, strict=True)))
        same.append(one.index(max(one)) == other.index(max(other)))
        nll.append(-math.log(other[token]))
    figures = torch.tensor([kl, nll], dtype=torch.float64)
    return Reading(figures[0], torch.tensor(same), figures[1], ())


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3", "gemma3", "qwen2_sliding"])
def test_figures_are_those_of_the_unpatched_model(family: str) -> None:
    lm = tiny(family)
    keep = some_keep(lm=lm)
    found = read_all(batch(lm, prefill(lm, Context(CONTEXT)), keep), QUESTION, TARGET)
    ids = (*CONTEXT, *QUESTION, *TARGET[:-1])
    full = unpatched_logits(lm, ids, TOKENS, torch.ones_like(keep[0]))[len(QUESTION) - 1 :]
    equal(found.full, by_hand(full, full))
    for mask, own in zip(keep, found.variants, strict=True):
        equal(own, by_hand(full, unpatched_logits(lm, ids, TOKENS, mask)[len(QUESTION) - 1 :]))
    assert any(not own.same.all() for own in found.variants)  # or nothing was shown
    assert all(float(own.kl.min()) > 0 for own in found.variants)


@pytest.mark.parametrize("block_bytes", [1, 40_000, 300_000])
def test_the_split_of_the_work_changes_nothing(block_bytes: int) -> None:
    split, whole = read(some_keep(6), block_bytes=block_bytes), read(some_keep(6))
    for left, right in zip((split.full, *split.variants), (whole.full, *whole.variants), strict=True):
        equal(left, right)
        assert left.kept == right.kept


def test_no_block_of_logits_is_larger_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    real = LM.logits
    monkeypatch.setattr(LM, "logits", lambda hidden: rows.append(hidden.shape[:-1].numel()) or real(hidden))
    hidden = torch.randn(9, 20, LM.info.hidden_size, dtype=torch.float64)
    compare(LM, hidden, torch.zeros(20, dtype=torch.long), 10 * 32 * 97)
    assert sum(rows) == 9 * 20
    assert max(rows) <= 9  # the full cache's block beside it counts too


def test_what_keeps_everything_is_the_full_cache_exactly() -> None:
    lm = tiny("llama", torch.float32)
    keep = torch.cat([some_keep(2), everything(1, TOKENS), some_keep(1)])
    found = read_all(batch(lm, prefill(lm, Context(CONTEXT)), keep), QUESTION, TARGET)
    for own in (found.full, found.variants[2]):
        assert own.kl.tolist() == [0.0] * len(TARGET)
        assert own.same.all()
        assert torch.equal(own.nll, found.full.nll)
    assert found.variants[0].kl.gt(0).all()


def expected(mask: Tensor, fed: Sequence[Sequence[int]], scored: Scored = SCORED, **more: Any) -> Tensor:
    """-log p of the target where the tokens are fed to the masked engine."""
    own = engine_logprobs(LM, scored, mask.unsqueeze(0), fed, **more)[0, len(QUESTION) - 1 :]
    return -own[torch.arange(len(TARGET)), torch.tensor(TARGET)]


@pytest.mark.parametrize("name", ["knorm", "h2o", "tova", "streaming_llm"])
def test_a_variant_that_prunes_while_decoding_reads_token_by_token(name: str) -> None:
    method = registry.build(name, {})
    scored = prefill(LM, Context(CONTEXT), [method])
    policy = Policy(method, Protection(window=2), removed=Decimal("0.5"))
    keep = torch.stack([some_keep(1)[0], everything(1, TOKENS)[0], some_keep(2)[1]])
    found = read(keep, scored, policies=[None, policy, policy])
    for own, mask, one in zip(found.variants, keep, (None, policy, policy), strict=True):
        chunks = [QUESTION, *((token,) for token in TARGET[:-1])]
        close(own.nll, expected(mask, chunks, scored, policies=[one]))
        (answer,) = decode(batch(LM, scored, mask.unsqueeze(0), policies=[one]), Question(QUESTION, len(TARGET)))
        assert len(own.kept) == len(answer.kept)
        if one is None or name == "streaming_llm":  # whose choice does not depend on the tokens
            assert own.kept == answer.kept
    assert min(found.variants[1].kept) < found.full.kept[0]


def test_positions_in_the_cache_are_those_of_decoding() -> None:
    keep = some_keep(1)
    (found,) = read(keep, positions=["cache"]).variants
    wanted = expected(keep[0], (QUESTION, TARGET[:-1]), positions=["cache"])
    close(found.nll, wanted)
    assert not torch.allclose(found.nll, read(keep).variants[0].nll)


def test_one_token_and_an_empty_context() -> None:
    empty = batch(LM, prefill(LM, Context(())), everything(1, 0))
    (found,) = read_all(empty, QUESTION, TARGET[:1]).variants
    with torch.inference_mode():
        wanted = -LM.model(torch.tensor([QUESTION])).logits[0, -1].log_softmax(-1)[TARGET[0]]
    close(found.nll, wanted.view(1))
    assert found.kept == (9 * len(QUESTION),)


def test_what_cannot_be_read_is_refused() -> None:
    one = batch(LM, SCORED, some_keep())
    for question, target in (((), TARGET), (QUESTION, ())):
        with pytest.raises(ValueError, match="a question and a target"):
            read_all(one, question, target)
    with pytest.raises(ValueError, match=r"needs 5.. positions, the model has 512"):
        read_all(one, QUESTION, some_ids(480))
