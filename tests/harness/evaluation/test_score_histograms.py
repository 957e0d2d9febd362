"""Histograms of scores: what a threshold would remove, without a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.evaluation.evaluator import Evaluator, Item
from harness.results.schema import Line
from harness.results.score_histograms import Histogram
from tests.harness.driving import evaluate, some


def histograms_of(made: Evaluator, items: Sequence[Item]) -> tuple[list[Line], list[Histogram]]:
    rows: list[Histogram] = []
    return evaluate(made, items, rows.append), rows


@pytest.mark.parametrize("tau", [-3.0, -2.0, -0.5])
@pytest.mark.parametrize("window", [0, 4, 11])
def test_a_threshold_on_the_histogram_removes_what_it_removes(
    evaluator: Callable[..., Evaluator], tau: float, window: int
) -> None:
    lines, rows = histograms_of(evaluator("carded", threshold=(tau,), window=(window,)), some(1, length=90))
    (row,) = rows
    width = (row.high - row.low) / len(row.counts)
    edge = round((tau - row.low) / width)
    below, near = sum(row.counts[:edge]), max(row.counts[edge - 1 : edge + 1])
    assert row.cached == lines[1].cached_pairs
    assert sum(row.counts) == row.cached - 9 * window
    assert lines[1].removed_context == pytest.approx(below / row.cached, abs=near / row.cached)
    assert below > 0


def test_one_histogram_a_context_method_and_protection(evaluator: Callable[..., Evaluator]) -> None:
    _, rows = histograms_of(evaluator("carded", "knorm", "kvzip_plus", window=(0, 3)), some(4))
    found = [(row.sample_id[-1], row.method, row.window) for row in rows]
    assert found == [(i, m, w) for i in "02" for m in ("carded", "kvzip_plus") for w in (0, 3)]


def test_a_histogram_is_filed_under_its_contexts_first_sample(evaluator: Callable[..., Evaluator]) -> None:
    lines, whole = histograms_of(evaluator("carded"), some(2))
    done = frozenset(line.key for line in lines if line.sample_id.endswith("/0"))
    _, rest = histograms_of(evaluator("carded", done=done), some(2))
    assert rest == whole


def test_scores_outside_the_histograms_range_fall_into_its_ends(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = evaluator("carded", window=(0,))
    monkeypatch.setattr(type(made.planned[1].method), "score_range", (-2.5, -1.5))
    _, (row,) = histograms_of(made, some(1))
    assert sum(row.counts) == row.cached
    assert row.counts[0] > row.cached // 4
    assert row.counts[-1] > row.cached // 4
