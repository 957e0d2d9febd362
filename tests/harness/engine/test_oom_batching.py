"""The memory of a batch: it grows with the answers, and where it runs out fewer rows decode at once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine import masked_decode
from harness.engine.batch import Batch
from harness.engine.context import Context
from harness.engine.decode import Answer, Question, decode_all
from harness.engine.eviction import Policy
from harness.engine.masked_decode import MaskedRun
from harness.engine.oom_batching import AtOnce
from harness.engine.prefill import prefill
from harness.engine.sampling import Sampling
from harness.engine.teacher_forcing import Reading, read_all
from methods.base import Method
from methods.h2o import H2O
from methods.knorm import Knorm
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from methods.tova import TOVA
from tests.tiny import batch, some_ids, some_masks, tiny

CONTEXT = some_ids(30)
METHODS: tuple[Method, ...] = (Knorm(), Random(), StreamingLLM(), H2O(), TOVA())
POLICIES = [None, *(Policy(method, method.mechanism, removed=Decimal("0.5")) for method in METHODS)]
POLICIES += [
    Policy(Knorm(), Knorm.mechanism, threshold=-1.5),
    Policy(StreamingLLM(), StreamingLLM.mechanism, keep_tokens=9),
]
#: rows of a method are no neighbours, one keeps its pairs' positions in the cache
POSITIONS = ["original"] * (len(POLICIES) - 1) + ["cache"]
ROLLOUTS = 3
QUESTION = Question(some_ids(6, seed=1), 24, frozenset({3, 40, 77, 150}), sampling=Sampling(1.0, "0/toy"))


LM = tiny()
SCORED = prefill(LM, Context(CONTEXT), METHODS)


def some_batch(at_once: AtOnce | None = None) -> Batch:
    keep = some_masks(len(POLICIES), 3, 3, len(CONTEXT))
    return Batch(LM, SCORED, keep, POLICIES, POSITIONS, 0, 2**20, at_once or AtOnce())


def answers(at_once: AtOnce | None = None) -> list[list[Answer]]:
    return decode_all(some_batch(at_once), QUESTION, ROLLOUTS)


def told(found: list[list[Answer]]) -> list[tuple[Any, ...]]:
    """All of the answers; ``kept`` is left out where answers are compared with ``==``."""
    return [(one.ids, one.finish_reason, one.steps, one.kept, one.stopped) for rollouts in found for one in rollouts]


@pytest.mark.parametrize("room", [1, 7, 29])
def test_room_that_grows_changes_no_answer(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    whole = told(answers())
    assert len({one[0] for one in whole}) > 12 and len({one[2] for one in whole}) > 4, "rows that end one by one"
    monkeypatch.setattr(masked_decode, "ROOM", room)
    assert told(answers()) == whole


def test_room_is_never_more_than_twice_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_decode, "ROOM", 4)
    run = MaskedRun(batch(LM, SCORED, some_masks(2, 3, 3, len(CONTEXT))), 1_000_000)
    rooms = []
    with run.engaged():
        for token in some_ids(40):
            run.advance(torch.tensor([[token], [token]]))
            rooms.append({own.shape[2] for own in (*run.keys, *run.values)})
    assert rooms == [{4}] * 4 + [{8}] * 4 + [{16}] * 8 + [{32}] * 16 + [{64}] * 8


def test_more_tokens_than_were_announced_are_refused() -> None:
    run = MaskedRun(batch(LM, SCORED, some_masks(1, 3, 3, len(CONTEXT))), 5)
    with run.engaged(), pytest.raises(ValueError, match="6 tokens after a prefix; there are to be 5 at most"):
        run.advance(torch.tensor([some_ids(6)]))


class Card:
    """A memory for ``most`` pairs of a head's suffixes. ``asked``: rows of each forward that feeds the question."""

    def __init__(self, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        advance = MaskedRun.advance

        def full(run: MaskedRun, ids: Tensor) -> Tensor:
            if not run.used:
                self.asked.append(run.variants)
            if run.variants * (run.used + ids.shape[1]) > most:
                raise torch.OutOfMemoryError("full card")
            return advance(run, ids)

        monkeypatch.setattr(MaskedRun, "advance", full)


def test_where_memory_runs_out_fewer_rows_decode_at_once_and_answer_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, at_once, rows = told(answers()), AtOnce(), len(POLICIES) * ROLLOUTS
    card = Card(100, monkeypatch)
    assert told(answers(at_once)) == whole
    assert card.asked[0] == rows and at_once.rows is not None and at_once.rows < rows // 2
    tried, card.asked[:] = len(card.asked), []
    assert told(answers(at_once)) == whole  # the next question begins with what fitted
    assert card.asked[0] == at_once.rows and sum(card.asked) == rows and len(card.asked) < tried


def test_where_memory_runs_out_fewer_variants_read_at_once_and_their_figures_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def readings(at_once: AtOnce | None = None) -> list[Reading]:
        found = read_all(some_batch(at_once), some_ids(6, seed=1), some_ids(18, seed=2))
        return [found.full, *found.variants]

    whole, at_once = readings(), AtOnce()
    card = Card(100, monkeypatch)
    for halved, once in zip(readings(at_once), whole, strict=True):
        assert halved.kept == once.kept and torch.equal(halved.same, once.same)
        torch.testing.assert_close((halved.kl, halved.nll), (once.kl, once.nll), rtol=0, atol=1e-10)
    assert not whole[0].kl.any() and all(one.kl.all() for one in whole[1:])
    assert card.asked[0] == len(whole) and at_once.rows is not None and at_once.rows < len(whole) // 2


def test_one_row_without_room_fails_and_leaves_the_next_question_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = AtOnce(20)
    card = Card(3, monkeypatch)
    with pytest.raises(torch.OutOfMemoryError, match="full card"):
        answers(at_once)
    assert card.asked == [20, 10, 5, 3, 2, 1] and at_once.rows == 20


def test_another_error_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def broken(run: MaskedRun, ids: Tensor) -> Tensor:
        calls.append(1)
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(MaskedRun, "advance", broken)
    with pytest.raises(RuntimeError, match="device-side assert"):
        answers()
    assert calls == [1]
