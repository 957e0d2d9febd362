"""pass@k against enumeration, its error by hand, and cells of samples with several sampled answers."""

from __future__ import annotations

import itertools
from fractions import Fraction
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from harness.analysis.pass_at_k import pass_at_k, rollout_metrics, standard_error
from harness.analysis.stats import mean_interval
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.schema import Cell, Disagreement, Facts, Line, VariantFields

KNORM = Variant("knorm", "head", "removed", 0.5, phase="both")
FACTS = {"toy": Facts(subsets=1, chance=0.0, answer_limit=100, pass_at=[1, 4], cross_check="second")}


def line(sample: str, rollout: int, right: bool | None, **more: Any) -> Line:
    given: dict[str, Any] = {
        "sample_id": sample,
        "context_id": sample,
        "benchmark": "toy",
        "subset": "red",
        "length": None,
        "rollout": rollout,
        "score": None if right is None else 100.0 * right,
        "status": "oom" if right is None else "ok",
        "finish_reason": "stop",
        "context_tokens": 9,
        "max_new_tokens": 100,
        "sampling": {"temperature": 0.6},
        "removed_context": 0.0,
        "removed_total": 0.5,
        "removed_time_mean": 0.25,
        **KNORM.fields(),
    }
    return Line(**{**given, **more})


def answers(*problems: str, **more: Any) -> list[Line]:
    """``10`` is a problem whose first answer is right and whose second is wrong; ``-`` is one that was not given."""
    marks = {"1": True, "0": False, "-": None}
    return [line(f"s{p}", r, marks[mark], **more) for p, own in enumerate(problems) for r, mark in enumerate(own)]


def cell(lines: list[Line], facts: dict[str, Facts] = FACTS) -> Cell:
    (found,) = [one for one in summarise(lines, facts, complete=True).cells if one.subset is None]
    return found


@pytest.mark.parametrize("answered", range(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_of_k_answers_that_hold_a_right_one(answered: int) -> None:
    for right, k in itertools.product(range(answered + 1), range(1, answered + 1)):
        chosen = list(itertools.combinations([True] * right + [False] * (answered - right), k))
        assert pass_at_k(answered, right, k) == pytest.approx(float(Fraction(sum(map(any, chosen)), len(chosen))))


def test_pass_at_k_of_too_few_answers_is_unknown_and_not_0() -> None:
    assert pass_at_k(3, 3, 4) is None
    assert pass_at_k(0, 0, 1) is None
    assert rollout_metrics(answers("111", "000"), (1, 4))["pass@4"] is None
    assert rollout_metrics(answers("1111", "000"), (1, 4))["pass@4"] is None  # one problem lacks an answer
    assert rollout_metrics(answers("111", "000"), (1, 4))["pass@1"] == 50


@pytest.mark.parametrize("wrong", [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_pass_at_k_refuses_what_cannot_be(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="pass@k needs"):
        pass_at_k(*wrong)


def test_pass_at_k_is_unbiased() -> None:
    draw = np.random.default_rng(1)
    rights = draw.binomial(6, 0.3, size=20_000)
    for k in (1, 2, 4):
        assert np.mean([pass_at_k(6, int(right), k) or 0.0 for right in rights]) == pytest.approx(1 - 0.7**k, abs=0.01)


def test_the_figures_of_a_cell_by_hand() -> None:
    found = cell(answers("1000", "0000", "1111", "1010"))
    assert found.score == found.metrics["pass@1"] == 43.75  # (25 + 0 + 100 + 50) / 4
    assert found.metrics["pass@4"] == 75
    # shares .25 0 1 .5: squared distances from .4375 sum to .546875; over 3, over 4, root
    assert found.metrics["pass@1_se"] == pytest.approx(100 * (0.546875 / 3 / 4) ** 0.5)
    assert [found.metrics[f"correct_rollout_{rollout}"] for rollout in range(4)] == [3, 1, 2, 1]
    assert (found.n, found.rollouts, found.n_failed) == (4, 4, 0)


def test_the_standard_error_needs_two_problems() -> None:
    assert standard_error([1.0]) is None
    assert standard_error([]) is None
    assert cell(answers("1010")).metrics["pass@1_se"] is None
    assert cell(answers("1010")).metrics["pass@1"] == 50


def test_failed_answers_are_counted_and_left_out() -> None:
    found = cell(answers("1-00", "0000"))
    assert (found.n, found.n_failed, found.rollouts) == (2, 1, 4)
    assert found.score == pytest.approx(100 * (1 / 3 + 0) / 2)
    assert found.metrics["pass@1"] == pytest.approx(found.score)
    assert found.metrics["pass@4"] is None


def test_the_interval_resamples_problems_and_not_answers() -> None:
    problems = ["1111"] * 8 + ["0000"] * 7
    found = cell(answers(*problems))
    means = [[100.0 * float(own[0]) for own in problems]]
    assert (found.low, found.high) == mean_interval(means)
    alone = mean_interval([[100.0 * float(mark) for own in problems for mark in own]]) or (0, 0)
    assert found.high - found.low > 1.7 * (alone[1] - alone[0])  # four equal answers are no four samples


def test_ten_problems_are_needed_for_an_interval_whatever_the_rollouts() -> None:
    assert cell(answers(*["1000"] * 9)).low is None
    assert cell(answers(*["1000"] * 10)).low == 25


def test_the_order_of_lines_does_not_matter() -> None:
    lines = answers("1000", "0110", "1111")
    assert summarise(lines[::-1], FACTS, True).cells[0].score == summarise(lines, FACTS, True).cells[0].score
    assert cell(lines[::-1]).metrics == pytest.approx(cell(lines).metrics)


def test_shares_and_means_of_the_answers() -> None:
    ends = ["length", "stop", "length", "length"]
    lines = [
        one.model_copy(update={"finish_reason": end, "generated_tokens": 10 * n, "removed_total": 0.1 * n})
        for n, (one, end) in enumerate(zip(answers("0101"), ends, strict=True))
    ]
    found = cell(lines)
    assert (found.limit_share, found.generated_mean) == (0.75, 15)
    assert found.removed_total_mean == pytest.approx(0.15)
    assert found.removed_mean == 0.25  # over time
    assert (found.max_new_tokens, found.of_new_tokens) == (100, 100)
    assert found.sampling == {"temperature": 0.6}


def test_settings_that_differ_within_a_cell_are_not_given_as_one() -> None:
    lines = [line("a", 0, True), line("b", 0, True, max_new_tokens=7, sampling=None)]
    assert (cell(lines).max_new_tokens, cell(lines).sampling) == (None, None)


def test_only_a_benchmark_that_says_so_has_pass_at_k() -> None:
    found = cell(answers("1000", "0110"), {"toy": Facts(subsets=1, chance=0.0)})
    assert found.metrics == {}
    assert found.score == 37.5


def test_answers_that_a_second_scorer_judges_otherwise_are_listed() -> None:
    lines = answers("10")
    lines = [
        lines[0].model_copy(update={"metrics": {"second": 1.0}}),
        lines[1].model_copy(update={"metrics": {"second": 0.0}}),
    ]
    summary = summarise(lines, FACTS, complete=True)
    place = {"benchmark": "toy", "sample_id": "s0", "variant": "knorm head 0.5", "rollout": 1}
    assert summary.disagreements == [Disagreement(**place, score=0.0, scorer="second")]
    assert summary.cells[-1].metrics["second"] == 0.5
    assert "disagreements" not in summarise(lines, {"toy": Facts(subsets=1, chance=0.0)}, complete=True).to_json()


def test_a_method_that_cannot_prune_in_the_phase_has_a_cell_with_a_note() -> None:
    lines = [*answers("1000"), *[one.model_copy(update={"length": 64}) for one in answers("1000")]]
    absent = Variant("kvzip", "global", phase="both", sinks="prefix")
    found = summarise(
        lines, FACTS, complete=True, unsupported=[(VariantFields.model_validate(absent.fields()), "prefill only")]
    ).cells
    empty = [one for one in found if one.method == "kvzip"]
    assert [(one.length, one.subset, one.n, one.score) for one in empty] == [(n, None, 0, None) for n in (None, 64)]
    assert {(one.note, one.status, one.removed_mean) for one in empty} == {("prefill only", "unsupported", None)}
    assert empty[0].model_dump(include=absent.fields().keys()) == absent.fields()
    assert found[1].model_fields_set <= empty[0].model_fields_set  # whatever a reader takes from a cell is there
    assert fmean(one.score for one in found if one.method == "knorm") == 25
