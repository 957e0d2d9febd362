"""Several sampled answers of a problem, pruned while they grow: one batch, the same in any, all counted."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from harness.analysis.summary import summarise
from harness.engine import decode
from harness.evaluation.evaluator import Evaluator, Item
from harness.results.schema import Facts, Line
from tests.harness.driving import decimals, evaluate, some

SAMPLING = {"temperature": 0.8, "top_p": 0.95, "top_k": 20}
NAMES = ("knorm", "streaming_llm", "h2o", "tova")


def sampled(count: int = 2, rollouts: int = 3, **changes: Any) -> list[Item]:
    given = {"sampling": SAMPLING, "rollouts": rollouts, "max_new_tokens": 9, "question": "", "answer_prefix": ""}
    return some(count, **{**given, **changes})


def test_all_rollouts_of_all_variants_decode_as_one_batch(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    class Counted(decode.MaskedRun):
        def __init__(self, batch: Any, *rest: Any) -> None:
            rows.append(len(batch.keep))
            super().__init__(batch, *rest)

    monkeypatch.setattr(decode, "MaskedRun", Counted)
    lines = evaluate(evaluator("knorm", "h2o", removed=decimals("0.3", "0.6"), phase="both"), sampled())
    assert rows == [5 * 3, 5 * 3]
    assert len(lines) == 2 * 5 * 3
    assert [(line.variant, line.rollout) for line in lines[:6]] == [
        (variant, rollout) for variant in ("full", "knorm head 0.3") for rollout in range(3)
    ]
    assert all(line.sampling == SAMPLING and line.max_new_tokens == 9 for line in lines)
    assert len({line.prediction for line in lines if line.method == "full"}) == 6


@pytest.mark.parametrize("phase", ["prefill", "decode", "both"])
def test_an_answer_is_the_same_in_whatever_batch(evaluator: Callable[..., Evaluator], phase: str) -> None:
    settings: dict[str, Any] = {"removed": decimals("0.5"), "phase": phase}
    together = {line.key: line for line in evaluate(evaluator(*NAMES, **settings), sampled())}
    alone = {line.key: line for name in NAMES for line in evaluate(evaluator(name, **settings), sampled())}
    assert alone == together
    fewer = {line.key: line for line in evaluate(evaluator(*NAMES, **settings), sampled(rollouts=1))}
    assert fewer == {key: line for key, line in together.items() if key[2] == 0}
    assert len({line.prediction for line in together.values()}) > 8  # or nothing was shown


@pytest.mark.parametrize("lines", [2, 8])
def test_a_resumed_run_equals_an_uninterrupted_one(evaluator: Callable[..., Evaluator], lines: int) -> None:
    settings: dict[str, Any] = {"removed": decimals("0.5"), "phase": "both"}
    whole = evaluate(evaluator("knorm", "h2o", **settings), sampled())
    done = frozenset(line.key for line in whole[:lines])
    assert evaluate(evaluator("knorm", "h2o", done=done, **settings), sampled()) == whole[lines:]


def test_another_seed_samples_other_answers(evaluator: Callable[..., Evaluator]) -> None:
    made = evaluator("full")
    first = [line.prediction for line in evaluate(made, sampled())]
    made.seed = 1
    assert all(
        one != other for one, other in zip(first, (ln.prediction for ln in evaluate(made, sampled())), strict=True)
    )


def removed_by_row(line: Line) -> float:
    assert line.cached_pairs_total is not None and line.kept_pairs_total is not None
    return 1 - line.kept_pairs_total / line.cached_pairs_total


@pytest.mark.parametrize("phase", ["prefill", "decode", "both"])
def test_the_removed_fraction_can_be_worked_out_from_each_row_alone(
    evaluator: Callable[..., Evaluator], phase: str
) -> None:
    budgets = {"budget": ("head", "threshold"), "threshold": (float("inf"),)}
    levels: dict[str, Any] = {"keep_tokens": (30,), **budgets}
    made = evaluator(*NAMES, phase=phase, **levels)
    items = sampled(context="x" * 50)
    lines = evaluate(made, items)
    heads = made.lm.info.layers * made.lm.info.kv_heads
    asked = len(made.prompts.question("", ""))
    for line in lines:
        fed = line.generated_tokens - (line.finish_reason == "length")  # a full answer's last token is not fed back
        assert line.cached_pairs_total == heads * (line.context_tokens + asked + fed)
        assert line.removed_total == pytest.approx(removed_by_row(line), abs=1e-12)
        assert line.cached_pairs == heads * line.context_tokens
    assert {line.removed_total for line in lines if line.method == "full"} == {0.0}
    pruned = [line for line in lines if line.method != "full"]
    assert all(line.removed_total for line in pruned)
    if phase == "prefill":
        assert all(
            line.kept_pairs_total - line.kept_pairs == line.cached_pairs_total - line.cached_pairs for line in pruned
        )  # type: ignore[operator]
    cells = summarise(lines, {"toy": Facts(subsets=3, chance=0.0)}, complete=True).cells
    for cell in (cell for cell in cells if cell.subset is None):
        own = [line for line in lines if line.variant == cell.variant]
        assert cell.removed_total_mean == pytest.approx(sum(map(removed_by_row, own)) / len(own))
        assert cell.n == len(items)


@pytest.mark.parametrize("name", NAMES)
def test_a_capacity_holds_at_the_end_of_every_answer(evaluator: Callable[..., Evaluator], name: str) -> None:
    made = evaluator(name, phase="both", keep_tokens=(30,), removed=decimals("0.4"))
    heads = made.lm.info.layers * made.lm.info.kv_heads
    lines = evaluate(made, sampled(context="x" * 50))
    for line in (line for line in lines if line.method != "full"):
        assert line.cached_pairs_total is not None
        most = int(Decimal(line.cached_pairs_total) / heads * Decimal("0.6"))
        wanted = 30 if line.level_kind == "keep_tokens" else most
        assert line.kept_pairs_total == heads * wanted, line.variant
