"""Methods that raise, return nonsense or write to what they are shown fail alone, in the prefill and while decoding."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import Context, Scored
from harness.engine.decode import Answer, Question, decode_all
from harness.engine.eviction import Policy
from harness.engine.prefill import prefill
from harness.engine.query_aware import score_in_view
from harness.engine.teacher_forcing import read_all
from methods.base import Method, Observation, Pass, Protection, Step
from methods.h2o import H2O
from methods.knorm import Knorm
from tests.tiny import some_ids, tiny

CONTEXT, ASKED = some_ids(30), some_ids(5, seed=1)
HALF = Decimal("0.5")


@dataclass(frozen=True)
class Foreign(Method):
    """Does ``fault`` in the call named ``where``; scores by key norms otherwise."""

    fault: str = ""
    where: str = "score"

    name: ClassVar[str] = "foreign"
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")
    needs: ClassVar[frozenset[str]] = frozenset({"hidden", "queries"})

    def passes(self, cached: int, prefix: int) -> list[Pass]:
        return [Pass("", (0, cached))] if self.where == "score_pass" else []

    def score(self, seen: Observation) -> Tensor:
        return self._scores("score", seen, -seen.keys.norm(dim=-1).float())

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        return self._scores("score_pass", seen, -seen.keys[:, : run.columns[1]].norm(dim=-1).float())

    def score_new(self, step: Step) -> Tensor:
        return self._scores("score_new", step, -step.keys.norm(dim=-1).float())

    def _scores(self, where: str, seen: Observation | Step, good: Tensor) -> Tensor:
        if where != self.where or not self.fault:
            return good
        if self.fault == "raise":
            raise KeyError("its own reason")
        if self.fault == "exit":
            raise SystemExit(3)
        if self.fault == "shape":
            return good[..., 1:]
        if self.fault == "nan":
            return good * torch.nan
        if self.fault == "shared":
            assert isinstance(seen, Observation)
            seen.shared("sums", lambda: good.sum(dim=-1)).add_(1)
            return good
        getattr(seen, self.fault).mul_(0.5)
        return good


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny(max_position_embeddings=512)


def same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other)


@pytest.mark.parametrize("fault", ["keys", "values", "queries", "hidden", "shared"])
@pytest.mark.parametrize("where", ["score", "score_pass"])
@pytest.mark.parametrize("first", [True, False])
def test_a_method_that_writes_to_what_it_is_shown_fails_and_changes_nothing(
    lm: LanguageModel, fault: str, where: str, first: bool
) -> None:
    writer, others = Foreign(fault=fault, where=where), [Knorm(), Foreign()]
    alone = prefill(lm, Context(CONTEXT), others)
    found = prefill(lm, Context(CONTEXT), [writer, *others] if first else [*others, writer])
    assert found.failed[writer].status == "error" and "in place" in found.failed[writer].reason
    assert set(found.failed) == {writer} and set(found.scores) == set(others)
    assert all(same(found.scores[method], alone.scores[method]) for method in others)
    assert all(map(same, found.prefix.keys, alone.prefix.keys))
    assert all(map(same, found.prefix.values, alone.prefix.values))
    assert same(found.prefix.last_hidden, alone.prefix.last_hidden)


def test_two_that_write_are_both_found(lm: LanguageModel) -> None:
    writers = [Foreign(fault="keys"), Foreign(fault="values")]
    found = prefill(lm, Context(CONTEXT), [*writers, Knorm()])
    assert set(found.failed) == set(writers) and list(found.scores) == [Knorm()]


def test_with_a_question_in_view_too(lm: LanguageModel) -> None:
    writer, other = Foreign(fault="keys"), Knorm()
    prefix = prefill(lm, Context(CONTEXT), later=[writer, other]).prefix
    before = [keys.clone() for keys in prefix.keys]
    alone = score_in_view(lm, prefix, ASKED, [other])
    found = score_in_view(lm, prefix, ASKED, [writer, other])
    assert set(found.failed) == {writer} and same(found.scores[other], alone.scores[other])
    assert all(map(same, prefix.keys, before))


def decoded(lm: LanguageModel, scored: Scored, policies: list[Policy | None]) -> list[Answer]:
    shape = (len(policies), lm.info.layers, lm.info.kv_heads, len(CONTEXT))
    keep = torch.ones(shape, dtype=torch.bool)
    for row in range(len(policies)):
        keep[row, :, :, 10 + row] = False  # no two rows are the same
    return [one for (one,) in decode_all(Batch(lm, scored, keep, policies), Question(ASKED, 8))]


FAULTS = [
    ("raise", "error", "its own reason"),
    ("exit", "error", "SystemExit"),
    ("shape", "error", "expected float32"),
    ("nan", "nan", "not finite"),
    ("keys", "error", "in place"),
    ("hidden", "error", "in place"),
]


@pytest.mark.parametrize(("fault", "status", "told"), FAULTS)
def test_a_method_that_fails_while_decoding_loses_its_own_rows_alone(
    lm: LanguageModel, fault: str, status: str, told: str
) -> None:
    bad, good = Foreign(fault=fault, where="score_new"), H2O()
    scored = prefill(lm, Context(CONTEXT), [bad, good])
    own = [Policy(bad, Protection(), removed=HALF), Policy(bad, Protection(window=4), threshold=0.0)]
    answers = decoded(lm, scored, [None, *own, Policy(good, Protection(), removed=HALF)])
    expected = decoded(lm, scored, [None, None, None, Policy(good, Protection(), removed=HALF)])
    assert (answers[0], answers[3]) == (expected[0], expected[3])
    assert answers[3].kept == expected[3].kept
    for answer in answers[1:3]:
        assert answer.finish_reason == "failed" and answer.failure is not None
        assert answer.failure.status == status and told in answer.failure.reason


@pytest.mark.parametrize(("fault", "status", "told"), FAULTS)
def test_and_while_reading(lm: LanguageModel, fault: str, status: str, told: str) -> None:
    bad = Foreign(fault=fault, where="score_new")
    scored = prefill(lm, Context(CONTEXT), [bad])
    keep = torch.ones(2, lm.info.layers, lm.info.kv_heads, len(CONTEXT), dtype=torch.bool)
    keep[1, :, :, 0] = False
    policies = [None, Policy(bad, Protection(), removed=HALF)]
    good, failed = read_all(Batch(lm, scored, keep, policies), ASKED, some_ids(6, seed=2)).variants
    assert good.failure is None and torch.equal(good.kl, torch.zeros_like(good.kl))
    assert failed.failure is not None and failed.failure.status == status and told in failed.failure.reason


def test_protection_beyond_a_capacity_is_told_of_the_row_that_it_binds(lm: LanguageModel) -> None:
    method = Knorm()
    scored = prefill(lm, Context(CONTEXT), [method])
    policies = [Policy(method, Protection(sinks=4, window=w), keep_tokens=10) for w in (16, 2)]
    bound, free = decoded(lm, scored, [*policies])
    per_head = lm.info.layers * lm.info.kv_heads
    assert bound.bound and set(bound.kept) == {20 * per_head}
    assert not free.bound and set(free.kept) == {10 * per_head}


@pytest.mark.parametrize("spares", [True, False])
def test_a_threshold_judges_the_contexts_newest_pairs_unless_it_spares_the_context(
    lm: LanguageModel, spares: bool
) -> None:
    method, window = Knorm(), 6
    scored = prefill(lm, Context(CONTEXT), [method])
    policy = Policy(method, Protection(window=window), threshold=float("inf"), spares_context=spares)
    keep = torch.ones(1, lm.info.layers, lm.info.kv_heads, len(CONTEXT), dtype=torch.bool)
    ((answer,),) = decode_all(Batch(lm, scored, keep, [policy]), Question(ASKED, 8))
    cached = [len(CONTEXT) + len(ASKED) + step for step in range(len(answer.kept))]
    # all judged pairs go: those before the context's window stay, as the prefill has judged them
    first = len(CONTEXT) if spares else len(CONTEXT) - window
    kept = [min(count, max(first, count - (count - first)) + min(window, count - first)) for count in cached]
    assert list(answer.kept) == [one * lm.info.layers * lm.info.kv_heads for one in kept]
