"""Teacher forcing in float64 against the unpatched model, against caches whose pairs are gone, and against itself."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context, Scored
from harness.engine.decode import Question, decode_all
from harness.engine.eviction import Policy, make_evictors
from harness.engine.prefill import prefill
from harness.engine.teacher_forcing import Reading, Readings, compare, read_all
from methods import registry
from methods.base import Method, Protection
from tests.tiny import PRUNABLE, Plain, engine_logprobs, some_ids, some_masks, tiny, unpatched_logits

TOKENS = 37
CONTEXT, QUESTION, TARGET = some_ids(TOKENS), some_ids(5, seed=1), some_ids(11, seed=2)


def some_keep(lm: LanguageModel, variants: int = 4) -> Tensor:
    return some_masks(variants, lm.info.layers, lm.info.kv_heads, TOKENS, seed=3)


def scored_with(lm: LanguageModel, *names: str) -> Scored:
    return prefill(lm, Context(CONTEXT), [registry.build(name, {}) for name in names])


def by_hand(full: Tensor, own: Tensor) -> Reading:
    """The figures from logits ``[n, vocabulary]``, token by token and in plain Python's arithmetic."""
    kl, same, nll = [], [], []
    for one, other, token in zip(full.softmax(-1).tolist(), own.softmax(-1).tolist(), TARGET, strict=True):
        kl.append(sum(p * math.log(p / q) for p, q in zip(one, other, strict=True)))
        same.append(one.index(max(one)) == other.index(max(other)))
        nll.append(-math.log(other[token]))
    return Reading(
        torch.tensor(kl, dtype=torch.float64), torch.tensor(same), torch.tensor(nll, dtype=torch.float64), ()
    )


def equal(found: Reading, wanted: Reading, atol: float = 1e-9) -> None:
    torch.testing.assert_close(found.kl, wanted.kl.to(found.kl), rtol=0, atol=atol)
    torch.testing.assert_close(found.nll, wanted.nll.to(found.nll), rtol=0, atol=atol)
    assert torch.equal(found.same, wanted.same)


def close(one: Readings, other: Readings) -> None:
    for left, right in zip((one.full, *one.variants), (other.full, *other.variants), strict=True):
        torch.testing.assert_close(left.kl, right.kl, rtol=0, atol=1e-10)
        torch.testing.assert_close(left.nll, right.nll, rtol=0, atol=1e-10)
        assert torch.equal(left.same, right.same)
        assert left.kept == right.kept


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3", "gemma3", "qwen2_sliding"])
def test_figures_are_those_of_the_unpatched_model(family: str) -> None:
    lm = tiny(family)
    keep = some_keep(lm)
    found = read_all(lm, scored_with(lm), keep, QUESTION, TARGET)
    ids = (*CONTEXT, *QUESTION, *TARGET[:-1])
    everything = torch.ones(len(PRUNABLE[family]), lm.info.kv_heads, TOKENS, dtype=torch.bool)
    full = unpatched_logits(lm, ids, TOKENS, everything)[len(QUESTION) - 1 :]
    equal(found.full, by_hand(full, full))
    for mask, own in zip(keep, found.variants, strict=True):
        equal(own, by_hand(full, unpatched_logits(lm, ids, TOKENS, mask)[len(QUESTION) - 1 :]))
    assert any(not own.same.all() for own in found.variants)  # or nothing was shown
    assert all(float(own.kl.min()) > 0 for own in found.variants)


def test_figures_are_those_of_caches_whose_pairs_are_gone() -> None:
    lm = tiny("llama")
    keep, plain = some_keep(lm), Plain(lm.model)
    found = read_all(lm, scored_with(lm), keep, QUESTION, TARGET)
    _, seen = plain.forward(CONTEXT)
    fed = (*QUESTION, *TARGET[:-1])
    full = plain.logprobs(fed, TOKENS, plain.gathered(seen, torch.ones_like(keep[0])))[len(QUESTION) - 1 :]
    for mask, own in zip(keep, found.variants, strict=True):
        equal(own, by_hand(full, plain.logprobs(fed, TOKENS, plain.gathered(seen, mask))[len(QUESTION) - 1 :]))


@pytest.mark.parametrize("block_bytes", [1, 40_000, 300_000])
def test_the_split_of_the_work_changes_nothing(block_bytes: int) -> None:
    lm = tiny("llama")
    scored, keep = scored_with(lm), some_keep(lm, 6)
    close(read_all(lm, scored, keep, QUESTION, TARGET, block_bytes), read_all(lm, scored, keep, QUESTION, TARGET))


def test_no_block_of_logits_is_larger_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, rows = tiny("llama"), []
    real = lm.logits
    monkeypatch.setattr(lm, "logits", lambda hidden: rows.append(hidden.shape[:-1].numel()) or real(hidden))
    hidden = torch.randn(9, 20, lm.info.hidden_size, dtype=torch.float64)
    compare(lm, hidden, torch.zeros(20, dtype=torch.long), 10 * 32 * 97)
    assert sum(rows) == 9 * 20
    assert max(rows) <= 9  # the full cache's block beside it counts too


def test_a_variant_reads_alone_what_it_reads_among_others() -> None:
    lm = tiny("llama")
    scored, keep = scored_with(lm), some_keep(lm)
    together = read_all(lm, scored, keep, QUESTION, TARGET)
    for index in range(len(keep)):
        alone = read_all(lm, scored, keep[index : index + 1], QUESTION, TARGET)
        close(alone, Readings(together.full, [together.variants[index]]))


def test_what_keeps_everything_is_the_full_cache_exactly() -> None:
    lm = tiny("llama", torch.float32)
    keep = torch.cat([some_keep(lm, 2), torch.ones(1, 3, 3, TOKENS, dtype=torch.bool), some_keep(lm, 1)])
    found = read_all(lm, scored_with(lm), keep, QUESTION, TARGET)
    for own in (found.full, found.variants[2]):
        assert own.kl.tolist() == [0.0] * len(TARGET)
        assert own.same.all()
        assert torch.equal(own.nll, found.full.nll)
    assert found.variants[0].kl.gt(0).all()


def test_pairs_kept_are_counted_as_if_the_tokens_had_been_written() -> None:
    lm = tiny("llama")
    scored, keep = scored_with(lm), some_keep(lm)
    (answer,), *_ = decode_all(lm, scored, keep, Question(QUESTION, len(TARGET)))
    assert read_all(lm, scored, keep, QUESTION, TARGET).variants[0].kept == answer.kept


def evicting(name: str) -> tuple[LanguageModel, Scored, Policy]:
    lm = tiny("llama")
    method: Method = registry.build(name, {})
    return lm, prefill(lm, Context(CONTEXT), [method]), Policy(method, Protection(window=2), removed=Decimal("0.5"))


@pytest.mark.parametrize("name", ["knorm", "h2o", "tova", "streaming_llm"])
def test_a_variant_that_prunes_while_decoding_reads_token_by_token(name: str) -> None:
    lm, scored, policy = evicting(name)
    keep = torch.stack([some_keep(lm, 1)[0], torch.ones(3, 3, TOKENS, dtype=torch.bool), some_keep(lm, 2)[1]])
    found = read_all(lm, scored, keep, QUESTION, TARGET, policies=[None, policy, policy])
    fed: list[Any] = [QUESTION, *((token,) for token in TARGET[:-1])]
    for row in (1, 2):
        mask = keep[row : row + 1]
        evictors = make_evictors([policy], scored.scores, mask, 0)
        with torch.inference_mode():
            own = engine_logprobs(lm, scored.prefix, mask, fed, evictors=evictors)[0, len(QUESTION) - 1 :]
        wanted = -own[torch.arange(len(TARGET)), torch.tensor(TARGET)]
        torch.testing.assert_close(found.variants[row].nll, wanted, rtol=0, atol=1e-9)
        answer = decode_all(lm, scored, mask, Question(QUESTION, len(TARGET)), policies=[policy])[0][0]
        assert len(found.variants[row].kept) == len(answer.kept)
        if name == "streaming_llm":  # whose choice does not depend on the tokens
            assert found.variants[row].kept == answer.kept
    assert min(found.variants[1].kept) < found.full.kept[0]
    plain = read_all(lm, scored, keep[:1], QUESTION, TARGET)
    close(Readings(found.full, found.variants[:1]), plain)  # and the others are not touched by it


def test_positions_in_the_cache_are_those_of_decoding() -> None:
    lm = tiny("llama")
    scored, keep = scored_with(lm), some_keep(lm, 1)
    found = read_all(lm, scored, keep, QUESTION, TARGET, positions=["cache"]).variants[0]
    fed = (QUESTION, TARGET[:-1])
    own = engine_logprobs(lm, scored.prefix, keep, fed, positions=["cache"])[0, len(QUESTION) - 1 :]
    torch.testing.assert_close(found.nll, -own[torch.arange(11), torch.tensor(TARGET)], rtol=0, atol=1e-9)
    original = read_all(lm, scored, keep, QUESTION, TARGET).variants[0]
    assert not torch.allclose(found.nll, original.nll)


def test_one_token_and_an_empty_context() -> None:
    lm = tiny("llama")
    scored = prefill(lm, Context(()))
    keep = torch.ones(1, 3, 3, 0, dtype=torch.bool)
    found = read_all(lm, scored, keep, QUESTION, TARGET[:1])
    with torch.inference_mode():
        wanted = -lm.model(torch.tensor([QUESTION])).logits[0, -1].log_softmax(-1)[TARGET[0]]
    torch.testing.assert_close(found.variants[0].nll, wanted.view(1), rtol=0, atol=1e-9)
    assert found.variants[0].kept == (9 * len(QUESTION),)


def test_what_cannot_be_read_is_refused() -> None:
    lm = tiny("llama")
    scored, keep = scored_with(lm), some_keep(lm)
    for question, target in (((), TARGET), (QUESTION, ())):
        with pytest.raises(ValueError, match="a question and a target"):
            read_all(lm, scored, keep, question, target)
    with pytest.raises(ValueError, match=r"needs 5.. positions, the model has 512"):
        read_all(lm, scored, keep, QUESTION, some_ids(480))
