"""Greedy decoding of a batch of variants, and what ends an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context, PositionsExceeded, Prefix
from harness.engine.decode import Answer, Question, decode, distinct, next_tokens
from harness.engine.prefill import prefill
from tests.tiny import VOCABULARY, greedy, some_ids, some_masks, tiny

TOKENS = 45
CONTEXT = some_ids(TOKENS)
ASKED, ALSO_ASKED = some_ids(6, seed=1), some_ids(9, seed=2)


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny("llama")


@pytest.fixture(scope="module")
def prefix(lm: LanguageModel) -> Prefix:
    return prefill(lm, Context(CONTEXT)).prefix


def masks(variants: int = 6, seed: int = 0) -> Tensor:
    keep = some_masks(variants, 3, 3, TOKENS, seed)
    keep[0] = True
    return keep


def single(lm: LanguageModel, prefix: Prefix, keep: Tensor, question: Question) -> list[Answer]:
    return [decode(lm, prefix, mask.unsqueeze(0), question)[0] for mask in keep]


@pytest.fixture
def batches(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shape of the ids of every forward."""
    shapes: list[tuple[int, int]] = []
    forward = lm.forward

    def spy(ids: Tensor, *more: Any) -> Tensor:
        shapes.append((ids.shape[0], ids.shape[1]))
        return forward(ids, *more)

    monkeypatch.setattr(lm, "forward", spy)
    return shapes


def test_the_control_answers_as_the_unpatched_model_with_its_own_cache(lm: LanguageModel, prefix: Prefix) -> None:
    for asked in (ASKED, ALSO_ASKED, (0,)):
        answer = decode(lm, prefix, masks(), Question(asked, 20))[0]
        assert list(answer.ids) == greedy(lm.model, CONTEXT + asked, 20)
        assert len(set(answer.ids)) > 3 and answer.finish_reason == "length"


def test_a_batch_of_variants_gives_the_tokens_of_single_runs(lm: LanguageModel, prefix: Prefix) -> None:
    keep, question = masks(8, seed=1), Question(ASKED, 16)
    together = decode(lm, prefix, keep, question)
    assert together == single(lm, prefix, keep, question)
    assert len({answer.ids for answer in together}) > 4


@pytest.mark.parametrize("block_bytes", [1, 4 * VOCABULARY * 3, 60_000])
def test_the_byte_budget_changes_no_token(lm: LanguageModel, prefix: Prefix, block_bytes: int) -> None:
    keep, question = masks(5, seed=2), Question(ASKED, 10)
    assert decode(lm, prefix, keep, question, block_bytes) == decode(lm, prefix, keep, question)


def test_two_questions_on_one_context_equal_two_single_runs(lm: LanguageModel) -> None:
    keep = masks(4, seed=3)
    shared = prefill(lm, Context(CONTEXT)).prefix
    both = [decode(lm, shared, keep, Question(asked, 12)) for asked in (ASKED, ALSO_ASKED, ASKED)]
    for asked, found in zip((ASKED, ALSO_ASKED, ASKED), both, strict=True):
        assert found == decode(lm, prefill(lm, Context(CONTEXT)).prefix, keep, Question(asked, 12))


def test_identical_masks_are_decoded_once(lm: LanguageModel, prefix: Prefix, batches: list[tuple[int, int]]) -> None:
    two = masks(2, seed=4)
    answers = decode(lm, prefix, two[[0, 1, 0, 1, 1, 0]], Question(ASKED, 4))
    assert batches == [(2, 6), (2, 1), (2, 1), (2, 1)]
    assert [answers[i] for i in (0, 1)] == single(lm, prefix, two, Question(ASKED, 4))
    assert answers == [answers[i] for i in (0, 1, 0, 1, 1, 0)]


def test_distinct_tells_masks_apart_by_a_single_pair() -> None:
    keep = torch.ones(5, 2, 2, 9, dtype=torch.bool)
    keep[2, 1, 1, 8] = False
    keep[3, 1, 1, 8] = False
    keep[4, 0, 1, 8] = False
    assert distinct(keep) == ([0, 2, 4], [0, 0, 1, 1, 2])
    assert distinct(torch.ones(3, 0, 2, 9, dtype=torch.bool)) == ([0], [0, 0, 0])


def stop_after(lm: LanguageModel, prefix: Prefix, keep: Tensor, place: int) -> int:
    """A token that the control gives at ``place`` and not before."""
    ids = decode(lm, prefix, keep[:1], Question(ASKED, place + 1))[0].ids
    assert ids[place] not in ids[:place]
    return ids[place]


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it(lm: LanguageModel, prefix: Prefix) -> None:
    stop = stop_after(lm, prefix, masks(), 4)
    whole = decode(lm, prefix, masks(), Question(ASKED, 20))[0]
    answer = decode(lm, prefix, masks(), Question(ASKED, 20, frozenset({stop, 200})))[0]
    assert answer == Answer(whole.ids[:4], "stop", steps=5)


def test_a_first_token_that_ends_the_text_gives_an_empty_answer(
    lm: LanguageModel, prefix: Prefix, batches: list[tuple[int, int]]
) -> None:
    stop = stop_after(lm, prefix, masks(), 0)
    batches.clear()
    assert decode(lm, prefix, masks(1), Question(ASKED, 20, frozenset({stop}))) == [Answer((), "stop", steps=1)]
    assert batches == [(1, 6)]


def test_variants_leave_the_batch_as_they_finish_and_the_others_go_on_unchanged(
    lm: LanguageModel, prefix: Prefix, batches: list[tuple[int, int]]
) -> None:
    keep = masks(8, seed=1)
    free = single(lm, prefix, keep, Question(ASKED, 16))
    stops = frozenset({answer.ids[index] for index, answer in enumerate(free) if index in (1, 3, 6)})
    question = Question(ASKED, 16, stops)
    alone = single(lm, prefix, keep, question)
    lengths = sorted({answer.steps for answer in alone})
    assert len(lengths) > 2, "the case needs variants that end at different steps"
    batches.clear()
    assert decode(lm, prefix, keep, question) == alone
    alive = [sum(answer.steps > step for answer in alone) for step in range(16)]
    assert [rows for rows, _ in batches] == [rows for rows in alive if rows]


def test_stop_text_ends_the_answer_with_the_token_that_completes_it(lm: LanguageModel, prefix: Prefix) -> None:
    whole = decode(lm, prefix, masks(), Question(ASKED, 20))[0]
    asked: list[tuple[int, ...]] = []

    def stop_text(ids: Sequence[int]) -> bool:
        asked.append(tuple(ids))
        return tuple(ids[-2:]) == whole.ids[2:4]

    answer = decode(lm, prefix, masks(1), Question(ASKED, 20, stop_text=stop_text))[0]
    assert answer == Answer(whole.ids[:4], "stop", steps=4)
    assert asked == [whole.ids[: n + 1] for n in range(4)]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_answer_limit_is_exact(
    lm: LanguageModel, prefix: Prefix, batches: list[tuple[int, int]], limit: int
) -> None:
    answers = decode(lm, prefix, masks(3), Question(ASKED, limit))
    assert [(len(answer.ids), answer.finish_reason, answer.steps) for answer in answers] == [
        (limit, "length", limit)
    ] * 3
    assert batches == [(3, 6)] + [(3, 1)] * (limit - 1)  # the last token is not fed


def test_a_stop_at_the_last_step_is_a_stop(lm: LanguageModel, prefix: Prefix) -> None:
    stop = stop_after(lm, prefix, masks(), 4)
    assert decode(lm, prefix, masks(), Question(ASKED, 5, frozenset({stop})))[0].finish_reason == "stop"


def test_nan_logits_end_that_variant_alone(lm: LanguageModel, prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, question = masks(4, seed=1), Question(ASKED, 8)
    healthy = decode(lm, prefix, keep, question)
    logits, calls = lm.logits, []

    def broken(hidden: Tensor) -> Tensor:
        found = logits(hidden).clone()
        calls.append(len(found))
        if len(calls) == 3:  # third step, second variant, one single entry
            found[1, 50] = float("nan")
        return found

    monkeypatch.setattr(lm, "logits", broken)
    answers = decode(lm, prefix, keep, question)
    assert answers[1] == Answer(healthy[1].ids[:2], "nan", steps=3)
    assert [answers[i] for i in (0, 2, 3)] == [healthy[i] for i in (0, 2, 3)]
    assert calls == [4, 4, 4, 3, 3, 3, 3, 3]


def test_a_model_of_nan_weights_gives_nan_and_no_token() -> None:
    lm = tiny("llama")
    lm.model.model.layers[2].mlp.down_proj.weight.fill_(float("nan"))
    prefix = prefill(lm, Context(CONTEXT)).prefix
    assert decode(lm, prefix, masks(2), Question(ASKED, 8)) == [Answer((), "nan", steps=1)] * 2


def test_prompt_and_answer_beyond_the_models_positions_are_refused_before_the_run(
    batches: list[tuple[int, int]],
) -> None:
    lm = tiny("llama", max_position_embeddings=60)
    prefix = prefill(lm, Context(CONTEXT)).prefix
    assert len(decode(lm, prefix, masks(1), Question(ASKED, 9))[0].ids) == 9
    with pytest.raises(PositionsExceeded, match=r"61 positions, the model has 60"):
        decode(lm, prefix, masks(1), Question(ASKED, 10))


def test_next_tokens_splits_the_lm_head_to_the_byte_budget(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = torch.randn(7, lm.info.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows: list[int] = []
    logits = lm.logits
    monkeypatch.setattr(lm, "logits", lambda hidden: rows.append(len(hidden)) or logits(hidden))
    best, broken = next_tokens(lm, hidden, block_bytes=2**20)
    assert rows == [7] and broken == [False] * 7
    assert best == [int(logits(row).argmax()) for row in hidden]
    assert next_tokens(lm, hidden, block_bytes=3 * 8 * VOCABULARY) == (best, broken)
    assert max(rows[1:]) * VOCABULARY * 8 <= 3 * 8 * VOCABULARY
    assert next_tokens(lm, hidden, block_bytes=1) == (best, broken)


def test_an_empty_context_is_answered(lm: LanguageModel) -> None:
    empty = prefill(lm, Context(())).prefix
    answers = decode(lm, empty, torch.ones(3, 3, 3, 0, dtype=torch.bool), Question(ASKED, 7))
    assert [list(answer.ids) for answer in answers] == [greedy(lm.model, ASKED, 7)] * 3
