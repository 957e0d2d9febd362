"""Cells of a summary, and the intervals of their means."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.schema import Cell, Facts, Line

FACTS = {"toy": Facts(subsets=3, chance=0.0)}
KNORM = Variant("knorm", "head", "removed", 0.5)
ids = itertools.count()


def line(score: float | None, subset: str = "red", variant: Variant = KNORM, **more: Any) -> Line:
    name = f"s{next(ids)}"
    given: dict[str, Any] = {
        "sample_id": name,
        "context_id": f"context of {name}",
        "benchmark": "toy",
        "subset": subset,
        "length": 64,
        "score": score,
        "status": "ok",
        "context_tokens": 9,
        "removed_context": 0.5,
        "removed_time_mean": 0.25,
        **variant.fields(),
    }
    return Line(**{**given, **more})


def control(score: float, subset: str = "red", **more: Any) -> Line:
    return line(score, subset, Variant("full"), **{"removed_context": 0.0, **more})


def cells(lines: list[Line], facts: dict[str, Facts] = FACTS) -> dict[tuple[str, str | None], Cell]:
    return {(c.method, c.subset): c for c in summarise(lines, facts, complete=True).cells}


def test_the_overall_mean_weighs_subsets_alike() -> None:
    found = cells([line(0), line(100), line(100), line(100), line(100, "blue"), line(40, "blue")])
    assert found["knorm", "red"].score == 75
    assert found["knorm", "blue"].score == 70
    assert found["knorm", None].score == 72.5  # over samples it would be 73.3


def test_a_cell_says_how_many_subsets_and_samples_it_has() -> None:
    found = cells([line(0), line(100), line(100, "blue")])
    assert (found["knorm", None].n, found["knorm", None].n_subsets) == (3, 2)
    assert found["knorm", None].of_subsets == 3
    assert (found["knorm", "red"].n, found["knorm", "red"].n_subsets) == (2, 1)


@pytest.mark.parametrize("status", ["truncated", "oom", "nan", "timeout", "error"])
def test_only_ok_and_too_short_are_averaged(status: str) -> None:
    bad = {"status": status, "removed_context": 0.9, "metrics": {"x": 9.0}}
    found = cells([line(60, metrics={"x": 1.0}), line(20, status="too_short", removed_context=0.0), line(0, **bad)])
    cell = found["knorm", "red"]
    assert (cell.score, cell.n, cell.n_failed) == (40, 2, 1)
    assert (cell.removed_mean, cell.removed_min, cell.removed_max) == (0.25, 0.0, 0.5)
    assert cell.metrics == {"x": 1.0}


def test_a_subset_without_scores_leaves_no_overall_score() -> None:
    found = cells([line(60), line(None, "blue", status="oom", removed_context=None)])
    assert found["knorm", "red"].score == 60
    assert (found["knorm", "blue"].score, found["knorm", "blue"].removed_mean) == (None, None)
    overall = found["knorm", None]
    assert (overall.score, overall.low, overall.n, overall.n_failed) == (None, None, 1, 1)


def test_removed_is_that_of_the_context_for_prefill_and_over_time_otherwise() -> None:
    lines = [line(1, removed_context=r, removed_time_mean=r / 2) for r in (0.25, 0.75)]
    cell = cells(lines)["knorm", "red"]
    assert (cell.removed_mean, cell.removed_min, cell.removed_max) == (0.5, 0.25, 0.75)
    cell = cells([one.model_copy(update={"phase": "decode"}) for one in lines])["knorm", "red"]
    assert (cell.removed_mean, cell.removed_min, cell.removed_max) == (0.25, 0.125, 0.375)


def test_removed_is_averaged_as_the_score_beside_it_is() -> None:
    lines = [line(100, removed_context=0.8, removed_total=0.8) for _ in range(3)]
    lines += [line(0, "blue", removed_context=0.4, removed_total=0.4)]
    overall = cells(lines)["knorm", None]
    assert overall.score == 50.0
    assert overall.removed_mean == pytest.approx(0.6) and overall.removed_total_mean == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("score", "chance", "floor"),
    [(0, 0, True), (19.9, 0, True), (20, 0, False), (50, 0, False), (25, 25, True), (24, 25, True), (25.1, 25, False)],
)
def test_a_control_at_chance_or_under_20_is_at_the_floor(score: float, chance: float, floor: bool) -> None:
    found = cells([control(score), line(100)], {"toy": Facts(subsets=3, chance=chance)})
    assert {key: cell.floor for key, cell in found.items()} == dict.fromkeys(found, floor)


def test_each_subset_has_a_floor_of_its_own_and_the_mean_has_another() -> None:
    found = cells([control(0), control(90, "blue"), line(50), line(50, "blue")])
    assert [found["knorm", subset].floor for subset in ("red", "blue", None)] == [True, False, False]
    assert [found["full", subset].floor for subset in ("red", "blue", None)] == [True, False, False]


def test_protection_that_bound_one_sample_is_said_of_the_cell() -> None:
    found = cells([line(1), line(1, bound_by="protection"), line(1, "blue")])
    assert [found["knorm", subset].bound_by for subset in ("red", "blue", None)] == [
        "protection",
        None,
        "protection",
    ]


def test_lengths_and_benchmarks_have_cells_of_their_own() -> None:
    lines = [line(10, length=64), line(30, length=128), line(50, benchmark="other", length=None)]
    found = summarise(lines, FACTS, complete=False).cells
    assert [(c.benchmark, c.length, c.score) for c in found if c.subset is None] == [
        ("toy", 64, 10),
        ("toy", 128, 30),
        ("other", None, 50),
    ]


def test_cells_carry_the_variants_fields_and_the_fraction_asked_for() -> None:
    tau = Variant("knorm", "threshold", "threshold", -4.5, window=128)
    cell = cells([line(1, variant=tau, requested_removed=0.5)])["knorm", "red"]
    assert cell.model_dump(include=tau.fields().keys()) == tau.fields()
    assert cell.requested_removed == 0.5


def test_an_infinite_level_can_be_written() -> None:
    lines = [line(1, variant=Variant("knorm", "threshold", "threshold", float("-inf")))]
    summary = summarise(lines, FACTS, complete=True)
    assert json.loads(json.dumps(summary.to_json(), allow_nan=False))["cells"][0]["level"] == "-inf"


def test_the_summary_says_whether_the_run_is_complete() -> None:
    for complete in (True, False):
        summary = summarise([line(1)], FACTS, complete)
        assert (summary.complete, summary.schema_version) == (complete, 1)


def test_failed_lines_do_not_count_towards_the_ten() -> None:
    lines = [line(1.0 * i) for i in range(9)] + [line(None, status="oom")]
    assert cells(lines)["knorm", "red"].low is None
