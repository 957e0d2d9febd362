"""Greedy decoding of a batch of variants, and what ends an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.context import Context, PositionsExceeded
from harness.engine.decode import Answer, Question, decode, next_tokens
from harness.engine.prefill import prefill
from tests.tiny import CONTEXT, VOCABULARY, batch, some_ids, some_masks, tiny

ASKED = some_ids(6, seed=1)
LM = tiny("llama")
PREFIX = prefill(LM, Context(CONTEXT)).prefix


def masks(variants: int = 6, seed: int = 0) -> Tensor:
    keep = some_masks(variants, 3, 3, len(CONTEXT), seed)
    keep[0] = True
    return keep


def ask(keep: Tensor, question: Question) -> list[Answer]:
    return decode(batch(LM, PREFIX, keep), question)


def single(keep: Tensor, question: Question) -> list[Answer]:
    return [ask(mask.unsqueeze(0), question)[0] for mask in keep]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shape of the ids of every forward."""
    shapes: list[tuple[int, int]] = []
    forward = LM.forward

    def spy(ids: Tensor, *more: Any) -> Tensor:
        shapes.append((ids.shape[0], ids.shape[1]))
        return forward(ids, *more)

    monkeypatch.setattr(LM, "forward", spy)
    return shapes


def test_identical_masks_are_decoded_once(batches: list[tuple[int, int]]) -> None:
    two, question = masks(2, seed=4), Question(ASKED, 4)
    answers = ask(two[[0, 1, 0, 1, 1, 0]], question)
    assert batches == [(2, 6), (2, 1), (2, 1), (2, 1)]
    assert answers == [single(two, question)[i] for i in (0, 1, 0, 1, 1, 0)]


def stop_after(keep: Tensor, place: int) -> int:
    """A token that the control gives at ``place`` and not before."""
    ids = ask(keep[:1], Question(ASKED, place + 1))[0].ids
    assert ids[place] not in ids[:place]
    return ids[place]


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it(batches: list[tuple[int, int]]) -> None:
    whole = ask(masks(), Question(ASKED, 20))[0]
    stop = stop_after(masks(), 4)
    assert ask(masks(), Question(ASKED, 20, frozenset({stop, 200})))[0] == Answer(whole.ids[:4], "stop", steps=5)
    assert ask(masks(), Question(ASKED, 5, frozenset({stop})))[0].finish_reason == "stop"  # at the last step too
    first = stop_after(masks(), 0)
    batches.clear()
    assert ask(masks(1), Question(ASKED, 20, frozenset({first}))) == [Answer((), "stop", steps=1)]
    assert batches == [(1, 6)]


def test_variants_leave_the_batch_as_they_finish_and_the_others_go_on_unchanged(batches: list[tuple[int, int]]) -> None:
    keep = masks(8, seed=1)
    free = single(keep, Question(ASKED, 16))
    question = Question(ASKED, 16, frozenset({free[index].ids[index] for index in (1, 3, 6)}))
    alone = single(keep, question)
    assert len({answer.steps for answer in alone}) > 2, "the case needs variants that end at different steps"
    batches.clear()
    assert ask(keep, question) == alone
    alive = [sum(answer.steps > step for answer in alone) for step in range(16)]
    assert [rows for rows, _ in batches] == [rows for rows in alive if rows]


def test_stop_text_ends_the_answer_with_the_token_that_completes_it() -> None:
    whole = ask(masks(), Question(ASKED, 20))[0]
    asked: list[tuple[int, ...]] = []

    def stop_text(ids: Sequence[int]) -> bool:
        asked.append(tuple(ids))
        return tuple(ids[-2:]) == whole.ids[2:4]

    answer = ask(masks(1), Question(ASKED, 20, stop_text=stop_text))[0]
    assert answer == Answer(whole.ids[:4], "stop", steps=4)
    assert asked == [whole.ids[: n + 1] for n in range(4)]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_answer_limit_is_exact(batches: list[tuple[int, int]], limit: int) -> None:
    answers = ask(masks(3), Question(ASKED, limit))
    assert [(len(one.ids), one.finish_reason, one.steps) for one in answers] == [(limit, "length", limit)] * 3
    assert batches == [(3, 6)] + [(3, 1)] * (limit - 1)  # the last token is not fed


def test_nan_logits_end_that_variant_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, question = masks(4, seed=1), Question(ASKED, 8)
    healthy = ask(keep, question)
    logits, calls = LM.logits, []

    def broken(hidden: Tensor) -> Tensor:
        found = logits(hidden).clone()
        calls.append(len(found))
        if len(calls) == 3:  # third step, second variant, one single entry
            found[1, 50] = float("nan")
        return found

    monkeypatch.setattr(LM, "logits", broken)
    answers = ask(keep, question)
    assert answers[1] == Answer(healthy[1].ids[:2], "nan", steps=3)
    assert [answers[i] for i in (0, 2, 3)] == [healthy[i] for i in (0, 2, 3)]
    assert calls == [4, 4, 4, 3, 3, 3, 3, 3]


def test_a_model_of_nan_weights_gives_nan_and_no_token() -> None:
    lm = tiny("llama")
    lm.model.model.layers[2].mlp.down_proj.weight.fill_(float("nan"))
    answers = decode(batch(lm, prefill(lm, Context(CONTEXT)), masks(2)), Question(ASKED, 8))
    assert answers == [Answer((), "nan", steps=1)] * 2


def test_prompt_and_answer_beyond_the_models_positions_are_refused_before_the_run() -> None:
    lm = tiny("llama", max_position_embeddings=60)
    one = batch(lm, prefill(lm, Context(CONTEXT)), masks(1))
    assert len(decode(one, Question(ASKED, 9))[0].ids) == 9
    with pytest.raises(PositionsExceeded, match=r"61 positions, the model has 60"):
        decode(one, Question(ASKED, 10))


def test_next_tokens_splits_the_lm_head_to_the_byte_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = torch.randn(7, LM.info.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows: list[int] = []
    logits = LM.logits
    monkeypatch.setattr(LM, "logits", lambda hidden: rows.append(len(hidden)) or logits(hidden))
    best, broken = next_tokens(LM, hidden, block_bytes=2**20)
    assert rows == [7] and broken == [False] * 7
    assert best == [int(logits(row).argmax()) for row in hidden]
    assert next_tokens(LM, hidden, block_bytes=3 * 8 * VOCABULARY) == (best, broken)
    assert max(rows[1:]) * VOCABULARY * 8 <= 3 * 8 * VOCABULARY
    assert next_tokens(LM, hidden, block_bytes=1) == (best, broken)
