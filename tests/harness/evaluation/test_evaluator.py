"""Samples x variants -> lines: what runs together, what is counted, what fails alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from benchmarks.base import Score
from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.evaluation import evaluator as runner
from harness.evaluation import query_aware_masks
from harness.evaluation.accounting import accounting
from harness.evaluation.evaluator import Evaluator
from harness.evaluation.keep_masks import masks
from harness.models.prompts import Prompts
from tests.harness.driving import HALF, decimals, evaluate, some
from tests.harness.toys import FAILURES, Toy, checksum
from tests.tiny import tiny

NAMES = ("knorm", "random", "streaming_llm", "kvzip", "kvzip_plus", "carded")
Make = Callable[..., Evaluator]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The contexts that were prefilled."""
    seen: list[Any] = []
    real = runner.prefill

    def counting(lm: Any, context: Any, *rest: Any) -> Any:
        seen.append(context)
        return real(lm, context, *rest)

    monkeypatch.setattr(runner, "prefill", counting)
    return seen


def test_each_sample_gets_a_line_of_each_variant_the_control_first(evaluator: Make, counted: list[Any]) -> None:
    lines = evaluate(evaluator("knorm", "random", removed=HALF), some(4))
    wanted = ["full", "knorm head 0.5", "random head 0.5"]
    expected = [(f"toy/red/40/0/{index}", variant) for index in range(4) for variant in wanted]
    assert [(line.sample_id, line.variant) for line in lines] == expected
    assert {line.status for line in lines} == {"ok"}
    assert all(line.score == checksum(line.prediction or "") for line in lines)
    assert all(line.metrics == {"letters": float(len(line.prediction or ""))} for line in lines)
    assert len(counted) == len({line.context_id for line in lines}) == 2  # two questions each share a prefill


def test_a_question_and_a_variant_are_the_same_alone_and_among_others(evaluator: Make) -> None:
    together = evaluate(evaluator(*NAMES), some(2))
    assert len(together) == 2 * (1 + 6 * 3)
    assert len({line.prediction for line in together}) > 2  # or nothing was shown
    assert [line for item in some(2) for line in evaluate(evaluator(*NAMES), [item])] == together
    alone = [line for name in NAMES for line in evaluate(evaluator(name), some(2))]
    assert {line.key: line for line in together} == {line.key: line for line in alone}


def test_with_the_question_in_view_each_question_has_a_prefill(
    evaluator: Make, toy_prompts: Prompts, counted: list[Any]
) -> None:
    plain = evaluate(evaluator("knorm", removed=HALF), some(2))
    aware = evaluate(evaluator("knorm", removed=HALF, query_aware=True), some(2))
    texts = [toy_prompts.decode(context.ids) for context in counted]
    assert [text.count(" number") for text in texts] == [0, 1, 1]
    assert "number 0?" in texts[1] and "number 1?" in texts[2]
    assert all("It is" not in text for text in texts)
    assert aware[0].context_tokens == plain[0].context_tokens + len(toy_prompts.encode(" number 0?"))
    assert aware[0].query_mode == "aware"
    assert aware[0].prediction == plain[0].prediction  # the control has the same tokens in the same places


def brute_force(keep: torch.Tensor, question: int, steps: int) -> tuple[float, float, float]:
    """Removed fractions by counting flags, forward by forward."""
    flags = [bool(flag) for flag in keep.flatten()]
    context = 1 - sum(flags) / len(flags)
    heads = keep.shape[0] * keep.shape[1]
    by_step = []
    for step in range(steps):
        flags += [True] * heads * (question if step == 0 else 1)
        by_step.append(1 - sum(flags) / len(flags))
    return context, by_step[-1], sum(by_step) / len(by_step)


@pytest.mark.parametrize(("question", "steps"), [(1, 1), (5, 1), (3, 9)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_accounting_equals_counting(question: int, steps: int, share: float) -> None:
    keep = torch.rand(2, 3, 17, generator=torch.Generator().manual_seed(1)) < share
    found = accounting(keep, question, [int(keep.sum()) + 6 * (question + step) for step in range(steps)])
    assert (found["cached_pairs"], found["kept_pairs"]) == (102, int(keep.sum()))
    fractions = [found[name] for name in ("removed_context", "removed_total", "removed_time_mean")]
    assert fractions == pytest.approx(brute_force(keep, question, steps), abs=1e-12)


def test_nothing_cached_is_nothing_removed() -> None:
    found = accounting(torch.ones(2, 3, 0, dtype=torch.bool), 4, [24, 30])
    assert {name: value for name, value in found.items() if value} == {"cached_pairs_total": 30, "kept_pairs_total": 30}


def test_removed_is_measured_from_the_masks(evaluator: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def keeping(*args: Any) -> Any:
        seen.append(masks(*args))
        return seen[-1]

    monkeypatch.setattr(query_aware_masks, "masks", keeping)
    made = evaluator("carded", "kvzip", "knorm", budget=("global", "threshold"), threshold=(-2.2,))
    lines = evaluate(made, some(1))
    question = len(made.prompts.question(" number 0?", " It is"))
    for line, keep in zip(lines, seen[0].keep, strict=True):
        assert line.finish_reason == "length"  # so there were as many forwards as new tokens
        assert (line.cached_pairs, line.kept_pairs) == (keep.numel(), sum(keep.flatten().tolist()))
        expected = brute_force(keep, question, line.generated_tokens)
        assert (line.removed_context, line.removed_total, line.removed_time_mean) == pytest.approx(expected)
        assert line.physical_bytes is None
    assert len({line.kept_pairs for line in lines}) > 3


def test_a_context_within_the_protection_runs_and_is_marked(evaluator: Make) -> None:
    lines = evaluate(evaluator("knorm", removed=HALF, window=(0, 500)), some(1))
    kept = [line.kept_pairs for line in lines]
    assert [line.status for line in lines] == ["ok", "ok", "too_short"]
    assert (kept[2], kept[1]) == (kept[0], 9 * (lines[1].context_tokens // 2))
    assert lines[2].score == lines[0].score
    lines = evaluate(evaluator("knorm", removed=decimals("0.1", "0.9"), window=(20,)), some(1))
    assert [line.bound_by for line in lines] == [None, None, "protection"]
    assert lines[2].kept_pairs == 3 * 3 * 20


@pytest.mark.parametrize(("chat", "template"), [(True, 2), (False, 0)])
@pytest.mark.parametrize("context", ["", "a"])
def test_empty_and_one_token_contexts_run_for_every_method(
    evaluator: Make, chat: bool, template: int, context: str
) -> None:
    lines = evaluate(evaluator(*NAMES, removed=HALF), some(1, context=context, chat_template=chat))
    assert [line.status for line in lines] == ["ok", *["too_short"] * len(NAMES)]
    assert {line.removed_context for line in lines} == {0.0}
    assert len({line.prediction for line in lines}) == 1
    assert lines[0].context_tokens == template + len(context)


def test_a_prompt_that_does_not_fit_is_truncated_and_not_run(evaluator: Make, counted: list[Any]) -> None:
    long, short = some(1, length=600)[0], some(1)[0]
    lines = evaluate(evaluator("knorm", removed=HALF), [long, short])
    assert [line.status for line in lines] == ["truncated", "truncated", "ok", "ok"]
    assert len(counted) == 1
    assert "positions, the model has 512" in (lines[0].reason or "")
    assert (lines[0].score, lines[0].prediction, lines[0].removed_context) == (None, None, None)


def test_the_last_position_may_be_used(evaluator: Make) -> None:
    made = evaluator("full")
    (item,) = some(1, length=470)
    used = len(made.prompts.context(item.sample.context).ids) + len(made.prompts.question(" number 0?", " It is"))
    room = made.lm.max_positions - used
    statuses = [evaluate(made, some(1, length=470, max_new_tokens=count))[0].status for count in (room, room + 1)]
    assert statuses == ["ok", "truncated"]


def test_an_answer_ends_at_a_stop_string(evaluator: Make) -> None:
    whole = evaluate(evaluator("full"), some(1, max_new_tokens=12))[0].prediction or ""
    mark = whole[2:4]
    (line,) = evaluate(evaluator("full"), some(1, max_new_tokens=12, stop=(mark,)))
    assert (line.prediction, line.finish_reason) == (whole[: whole.index(mark)], "stop")
    assert line.generated_tokens < 12


def test_only_missing_lines_are_made(evaluator: Make, counted: list[Any]) -> None:
    whole = evaluate(evaluator("knorm", "random", removed=HALF), some(4))
    counted.clear()
    for count, prefills in ((5, 2), (6, 1), (len(whole), 0)):
        made = evaluator("knorm", "random", removed=HALF, done=frozenset(line.key for line in whole[:count]))
        assert evaluate(made, some(4)) == whole[count:]
        assert len(counted) == prefills
        counted.clear()


@pytest.mark.parametrize("how", FAILURES)
def test_a_method_that_fails_has_lines_with_the_reason(evaluator: Make, how: str) -> None:
    lines = evaluate(evaluator("broken", "knorm", removed=HALF, option=(f"broken.how={how}",)), some(2))
    status, reason = FAILURES[how]
    good, bad = [[line for line in lines if (line.method == "broken") == own] for own in (False, True)]
    assert {line.status for line in bad} == {status}
    assert all(reason in (line.reason or "") for line in bad)
    assert {(line.score, line.prediction, line.removed_context) for line in bad} == {(None, None, None)}
    assert good == evaluate(evaluator("knorm", removed=HALF), some(2))


def test_methods_that_fail_in_different_ways_do_so_side_by_side(evaluator: Make) -> None:
    options = tuple(f"broken.how={how}" for how in FAILURES)
    lines = evaluate(evaluator("broken", removed=HALF, option=options), some(1))
    assert [line.status for line in lines] == ["ok", *(status for status, _ in FAILURES.values())]


@pytest.mark.parametrize(
    ("stage", "call", "failure", "failed"),
    [
        ("prefill", 1, MemoryError(), slice(0, 4)),
        ("prefill", 1, torch.OutOfMemoryError("full card"), slice(0, 4)),
        ("decode_all", 2, torch.OutOfMemoryError("full card"), slice(2, 4)),
    ],
)
def test_memory_that_runs_out_fails_the_context_of_a_prefill_and_the_question_of_a_decode(
    evaluator: Make, monkeypatch: pytest.MonkeyPatch, stage: str, call: int, failure: BaseException, failed: slice
) -> None:
    real = getattr(runner, stage)
    calls: list[int] = []

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise failure
        return real(*args)

    monkeypatch.setattr(runner, stage, failing)
    lines = evaluate(evaluator("knorm", removed=HALF), some(4))
    expected = ["ok"] * 8
    expected[failed] = ["oom"] * len(expected[failed])
    assert [line.status for line in lines] == expected
    assert {line.reason for line in lines[failed]} == {str(failure) or "out of memory"}
    assert len({line.key for line in lines}) == 8


def test_logits_that_are_nan_are_no_answer(toy_prompts: Prompts, toys: None) -> None:
    lm = tiny("llama", vocab_size=len(toy_prompts.tokenizer))
    lm.model.lm_head.weight.data[7] = torch.nan
    made = Evaluator(lm, toy_prompts, frozenset(), plan(RunConfig(method=("knorm",), removed=HALF), lm.info).planned)
    lines = evaluate(made, some(1))
    assert {(line.status, line.score, line.finish_reason) for line in lines} == {("nan", None, "nan")}
    assert all("NaN" in (line.reason or "") for line in lines)


def test_a_score_outside_0_to_100_is_not_written(evaluator: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "score", lambda self, sample, prediction: Score(100.5))
    with pytest.raises(ValidationError, match="less than or equal to 100"):
        evaluate(evaluator("full"), some(1))
