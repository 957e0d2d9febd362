"""Documents that are too long for a model, cut in their middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.fidelity import benchmark
from harness.evaluation.evaluator import Evaluator, Item
from harness.models import truncation
from harness.models.prompts import Prompts
from tests.harness.driving import HALF, evaluate, some
from tests.harness.toys import Toy, toy_sample

HEAD = "Read the notes.\n"
#: the tiny model's positions, and the room of an extra pass among them
MOST, PASS = 512, 288


def document(length: int, **changes: Any) -> Item:
    """A sample whose document of single letters follows an instruction; a token a letter, with no merges."""
    letters = "".join(chr(65 + (i * 7 + i * i) % 26) for i in range(length))
    return some(1, **{"context": HEAD + letters, "cut_from": len(HEAD), **changes})[0]


def ids(prompts: Prompts, text: str) -> tuple[int, ...]:
    return tuple(prompts.encode(text))


@pytest.mark.parametrize("chat_template", [True, False])
@pytest.mark.parametrize("query_aware", [True, False])
@pytest.mark.parametrize("length", [600, 601, 2000])
def test_the_middle_of_the_document_is_left_out_and_nothing_else(
    toy_prompts: Prompts, chat_template: bool, query_aware: bool, length: int
) -> None:
    sample = document(length, chat_template=chat_template).sample
    seen = sample.question if query_aware else ""
    whole = toy_prompts.context(sample.context + seen, chat_template)
    found = truncation.fitted(toy_prompts, sample, MOST, query_aware).context
    before = len(toy_prompts.context(HEAD, chat_template).ids)
    after = len(ids(toy_prompts, seen))
    assert len(found.ids) == MOST - PASS and found.cut == len(whole.ids) - len(found.ids)
    kept = len(found.ids) - before - after
    first, last = before + (kept + 1) // 2, after + kept // 2
    assert found.ids == whole.ids[:first] + whole.ids[-last:]
    assert found.ids[:before] == toy_prompts.context(HEAD, chat_template).ids
    assert not after or found.ids[-after:] == ids(toy_prompts, seen)
    assert (found.prefix, found.suffix) == (whole.prefix, whole.suffix)
    assert whole.ids[found.cut_at : found.cut_at + found.cut] == whole.ids[first : len(whole.ids) - last]


def test_what_fits_stays_whole(toy_prompts: Prompts) -> None:
    used = len(toy_prompts.context(document(0).sample.context).ids)
    for length, cut in ((MOST - PASS - used, 0), (MOST - PASS - used + 1, 1)):
        found = truncation.fitted(toy_prompts, document(length).sample, MOST).context
        assert (found.cut, len(found.ids)) == (cut, MOST - PASS)


def test_the_answer_has_its_room_where_it_takes_more_than_an_extra_pass(toy_prompts: Prompts) -> None:
    sample = document(800, max_new_tokens=300).sample
    found = truncation.fitted(toy_prompts, sample, MOST)
    assert len(found.context.ids) + len(found.question) + 300 == MOST


def test_a_large_model_keeps_room_for_kvzip_s_pass(toy_prompts: Prompts) -> None:
    for new, left in ((8, 8192 - 2112), (8000, 8192 - 8000 - len(toy_prompts.question(" number 0?", " It is")))):
        sample = document(10, max_new_tokens=new).sample
        assert truncation.room(sample, toy_prompts.of(sample), 8192) == left


@pytest.mark.parametrize("changes", [{"cut_from": None}, {"max_new_tokens": 440}])
def test_a_prompt_without_a_document_or_room_is_not_cut(toy_prompts: Prompts, changes: dict[str, Any]) -> None:
    sample = document(600, **changes).sample
    assert truncation.fitted(toy_prompts, sample, MOST) == toy_prompts.of(sample)


def test_a_token_across_the_border_belongs_to_the_instruction_or_to_the_document(toy_prompts: Prompts) -> None:
    text = "Several access codes are written down somewhere in these notes. " * 40
    for start in range(60, 75):  # in the middle of words too
        sample = some(1, context=text, cut_from=start)[0].sample
        whole, found = toy_prompts.context(text), truncation.fitted(toy_prompts, sample, MOST).context
        head = toy_prompts.decode(found.ids[found.prefix :][: len(ids(toy_prompts, text[:start])) + 40])
        assert text.startswith(head) and len(head) > start
        assert (
            found.ids == whole.ids[: _same(found.ids, whole.ids)] + whole.ids[_same(found.ids, whole.ids) + found.cut :]
        )


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next(place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])


def test_a_cut_prompt_runs_for_every_method_and_says_so(evaluator: Callable[..., Evaluator]) -> None:
    made = evaluator("knorm", "kvzip", "streaming_llm", removed=HALF)
    lines = evaluate(made, [document(600), document(20, context_id="other", sample_id="other")])
    assert [line.status for line in lines] == ["ok"] * 8
    assert [line.prompt_cut for line in lines] == [True] * 4 + [False] * 4
    assert {line.context_tokens for line in lines[:4]} == {MOST - PASS}
    assert lines[0].prediction is not None and lines[0].removed_context == 0


def test_a_cut_prompt_s_lines_do_not_depend_on_what_runs_beside_it(evaluator: Callable[..., Evaluator]) -> None:
    items = [
        Item(Toy(), _asked(index, max_new_tokens))
        for index, max_new_tokens in enumerate((4, 300, 4))  # the second needs more room
    ]
    together = evaluate(evaluator("knorm", removed=HALF), items)
    assert [line.context_tokens for line in together[::2]] == [224, 512 - 300 - _question(evaluator), 224]
    assert len({line.context_id for line in together}) == 1
    for item in items:
        alone = evaluate(evaluator("knorm", removed=HALF), [item])
        assert alone == [line for line in together if line.sample_id == item.sample.sample_id]


def _asked(index: int, max_new_tokens: int) -> Any:
    from dataclasses import replace

    sample = document(600).sample
    return replace(
        sample, sample_id=toy_sample("red", 1, index).sample_id, question=" number 1?", max_new_tokens=max_new_tokens
    )


def _question(evaluator: Callable[..., Evaluator]) -> int:
    return len(evaluator("full").prompts.question(" number 1?", " It is"))


def test_questions_on_one_cut_document_share_a_prefill(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.evaluation import evaluator as runner

    seen: list[int] = []

    def counting(lm: Any, context: Any, *rest: Any) -> Any:
        seen.append(len(context.ids))
        return real(lm, context, *rest)

    real = runner.prefill
    monkeypatch.setattr(runner, "prefill", counting)
    evaluate(evaluator("knorm", removed=HALF), [Item(Toy(), _asked(0, 4)), Item(Toy(), _asked(1, 6))])
    assert seen == [224]


def test_fidelity_repeats_as_much_as_the_pass_that_room_is_kept_for() -> None:
    assert benchmark.CHUNK == truncation.CHUNK
