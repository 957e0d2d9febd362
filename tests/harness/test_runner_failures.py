"""What fails, fails alone: its lines say why, all others are as they would be without it."""

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
from harness.evaluation.evaluator import Evaluator
from harness.models.prompts import Prompts
from tests.harness.driving import HALF, evaluate, some
from tests.harness.toys import FAILURES, Toy
from tests.tiny import tiny


@pytest.mark.parametrize("how", FAILURES)
def test_a_method_that_fails_has_lines_that_say_why(evaluator: Callable[..., Evaluator], how: str) -> None:
    lines = evaluate(evaluator("broken", "knorm", removed=HALF, option=(f"broken.how={how}",)), some(2))
    status, reason = FAILURES[how]
    good, bad = [[line for line in lines if (line.method == "broken") == own] for own in (False, True)]
    assert {line.status for line in bad} == {status}
    assert all(reason in (line.reason or "") for line in bad)
    assert {(line.score, line.prediction, line.removed_context) for line in bad} == {(None, None, None)}
    assert good == evaluate(evaluator("knorm", removed=HALF), some(2))


def test_methods_that_fail_in_different_ways_do_so_side_by_side(evaluator: Callable[..., Evaluator]) -> None:
    options = tuple(f"broken.how={how}" for how in FAILURES)
    lines = evaluate(evaluator("broken", removed=HALF, option=options), some(1))
    assert [line.status for line in lines] == ["ok", *(status for status, _ in FAILURES.values())]


@pytest.mark.parametrize("failure", [MemoryError(), torch.OutOfMemoryError("full card")])
def test_a_prefill_without_memory_fails_its_context_only(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    real = runner.prefill
    left = [failure]

    def once(*args: Any) -> Any:
        if left:
            raise left.pop()
        return real(*args)

    monkeypatch.setattr(runner, "prefill", once)
    lines = evaluate(evaluator("knorm", removed=HALF), some(4))
    assert [line.status for line in lines] == ["oom"] * 4 + ["ok"] * 4
    assert lines[0].reason == (str(failure) or "out of memory")


def test_a_decode_without_memory_fails_its_question_only(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runner.decode_all
    calls: list[int] = []

    def second_fails(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("full card")
        return real(*args)

    monkeypatch.setattr(runner, "decode_all", second_fails)
    lines = evaluate(evaluator("knorm", removed=HALF), [*some(2), *some(4)[2:]])
    assert [line.status for line in lines] == ["ok", "ok", "oom", "oom", *["ok"] * 4]
    assert len({line.key for line in lines}) == len(lines) == 8


def test_logits_that_are_nan_are_no_answer(toy_prompts: Prompts, toys: None) -> None:
    lm = tiny("llama", vocab_size=len(toy_prompts.tokenizer))
    lm.model.lm_head.weight.data[7] = torch.nan
    made = Evaluator(lm, toy_prompts, frozenset(), plan(RunConfig(method=("knorm",), removed=HALF), lm.info).planned)
    lines = evaluate(made, some(1))
    assert {(line.status, line.score, line.finish_reason) for line in lines} == {("nan", None, "nan")}
    assert all("NaN" in (line.reason or "") for line in lines)


def test_a_score_outside_0_to_100_is_not_written(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "score", lambda self, sample, prediction: Score(100.5))
    with pytest.raises(ValidationError, match="less than or equal to 100"):
        evaluate(evaluator("full"), some(1))
