"""Further figures beside the scores: means, intervals, differences from the control, and where they are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

import numpy as np
import pytest

from harness.analysis.pass_at_k import pass_at_k
from harness.analysis.stats import mean_interval
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.schema import Cell, Facts, Line
from tests.harness.driving import Ran
from tests.harness.made_runs import FACTS, FULL, KEYDIFF, KNORM, lines_of

Cli = Callable[..., Ran]
Drawn = Mapping[str, list[float]]
SIZES = {"red": 10, "blue": 16}


def drawn(seed: int, low: float = 0.0, high: float = 1.0) -> dict[str, list[float]]:
    random = np.random.default_rng(seed)
    return {subset: random.uniform(low, high, size).tolist() for subset, size in SIZES.items()}


def with_metrics(variant: Variant, scores: Drawn, **metrics: Drawn) -> list[Line]:
    """A line a score, with these metrics of the same samples."""
    lines, places = lines_of(variant, scores), dict.fromkeys(scores, 0)
    found = []
    for line in lines:
        place = places[line.subset]
        own = {name: values[line.subset][place] for name, values in metrics.items() if place < len(values[line.subset])}
        places[line.subset] += 1
        found.append(line.model_copy(update={"metrics": own}))
    return found


def cells(*parts: list[Line], facts: dict[str, Facts] = FACTS) -> dict[tuple[str, str | None], Cell]:
    summary = summarise([line for part in parts for line in part], facts, True)
    return {(cell.method, cell.subset): cell for cell in summary.cells}


def test_means_and_intervals_are_made_as_those_of_scores() -> None:
    kl, exact = drawn(1), drawn(2, 0, 100)
    cell = cells(with_metrics(KNORM, drawn(3), kl_mean=kl, exact_match=exact))["knorm", None]
    for name, values in (("kl_mean", kl), ("exact_match", exact)):
        assert cell.metrics[name] == pytest.approx(fmean(map(fmean, values.values())))  # subsets weigh alike
        assert cell.metric_intervals[name] == pytest.approx(mean_interval(list(values.values())), abs=1e-9)
    one = cells(with_metrics(KNORM, drawn(3), kl_mean=kl))["knorm", "red"]
    assert one.metric_intervals["kl_mean"] == pytest.approx(mean_interval([kl["red"]]), abs=1e-9)


def test_a_metric_that_is_the_score_has_the_scores_interval() -> None:
    scores = drawn(4, 0, 100)
    cell = cells(with_metrics(KNORM, scores, same=scores))["knorm", None]
    assert cell.metric_intervals["same"] == pytest.approx([cell.low, cell.high], abs=1e-9)


def test_rollouts_of_a_sample_count_once() -> None:
    first, second = drawn(5), drawn(6)
    lines = [
        line.model_copy(update={"rollout": rollout})
        for rollout, values in enumerate((first, second))
        for line in with_metrics(KNORM, drawn(7), x=values)
    ]
    means = [[(a + b) / 2 for a, b in zip(first[name], second[name], strict=True)] for name in SIZES]
    cell = cells(lines)["knorm", None]
    assert cell.metrics["x"] == pytest.approx(fmean(map(fmean, means)))
    assert cell.metric_intervals["x"] == pytest.approx(mean_interval(means), abs=1e-9)


def test_there_is_none_under_ten_samples_a_subset_or_where_a_subset_lacks_the_metric() -> None:
    few = {"red": [0.5] * 9, "blue": [0.5] * 16}
    cell = cells(with_metrics(KNORM, drawn(8), x=few))["knorm", None]
    assert (cell.metrics, cell.metric_intervals) == ({"x": 0.5}, {})
    cell = cells(with_metrics(KNORM, drawn(8), x={"red": [], "blue": [0.25] * 16}))["knorm", None]
    assert (cell.metrics, cell.metric_intervals) == ({"x": 0.25}, {})
    failed = with_metrics(KNORM, drawn(8), x=drawn(9))
    failed = [ln.model_copy(update={"status": "oom"}) if ln.subset == "red" else ln for ln in failed]
    cell = cells(failed)["knorm", None]
    assert (cell.score, cell.low, list(cell.metrics), cell.metric_intervals) == (None, None, ["x"], {})


def test_pass_at_k_has_the_interval_of_its_problems() -> None:
    random = np.random.default_rng(10)
    right = {name: random.integers(0, 2, (size, 3)) for name, size in SIZES.items()}
    lines = [
        line.model_copy(update={"rollout": rollout})
        for rollout in range(3)
        for line in lines_of(KNORM, {name: (100.0 * own[:, rollout]).tolist() for name, own in right.items()})
    ]
    cell = cells(lines, facts={"toy": Facts(subsets=2, chance=0.0, pass_at=[1, 2, 8])})["knorm", None]
    each = [100 * (pass_at_k(3, int(problem.sum()), 2) or 0) for own in right.values() for problem in own]
    assert cell.metrics["pass@2"] == pytest.approx(fmean(each))
    assert cell.metric_intervals["pass@2"] == pytest.approx(mean_interval([each]), abs=1e-9)
    assert cell.metrics["pass@8"] is None
    assert cell.metric_intervals.keys() == {"pass@1", "pass@2"}  # no interval of an error or a count


def test_differences_from_the_control_are_paired_and_those_from_a_constant_left_out() -> None:
    scores, ours, theirs = drawn(11), drawn(12, 0, 100), drawn(13, 0, 100)
    nothing = {name: [0.0] * size for name, size in SIZES.items()}
    control = with_metrics(FULL, scores, exact_match=theirs, kl_mean=nothing)
    lines = [*control, *with_metrics(KNORM, scores, exact_match=ours, kl_mean=drawn(14))]
    lines += with_metrics(KEYDIFF, scores, exact_match=theirs, kl_mean=drawn(15))
    pairs = {(p.a, p.b): p for p in summarise(lines, FACTS, True).pairs}
    strata = [[a - b for a, b in zip(ours[name], theirs[name], strict=True)] for name in SIZES]
    found = pairs[KNORM.label, "full"].metrics
    assert found.keys() == {"exact_match"}
    own = found["exact_match"]
    assert own.difference == pytest.approx(fmean(map(fmean, strata)))
    assert (own.low, own.high) == pytest.approx(mean_interval(strata), abs=1e-9)
    same = pairs[KEYDIFF.label, "full"].metrics["exact_match"]
    assert same.to_json() == {"difference": 0.0, "low": 0.0, "high": 0.0}
    assert "metrics" not in pairs[KNORM.label, KEYDIFF.label]
