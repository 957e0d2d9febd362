"""Scores of predictions that another program made, by a benchmark's own metrics; no model is needed."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from rich.table import Table

import benchmarks.registry
from benchmarks.base import Benchmark, BenchmarkError, nearest_first
from harness.analysis.subset_groups import group_means
from harness.errors import HarnessError
from harness.measure.figures import PredictionScores, SubsetScore
from harness.reporting.console import print_table
from harness.reporting.metric_tables import group_label


def score(name: str, predictions: Path) -> PredictionScores:
    """Mean score of each subset, of each group of subsets, and over all of them, on 0-100."""
    benchmark = _known(name)
    scores: dict[str, list[float]] = {}
    for sample, prediction in benchmark.read_predictions(predictions):
        scores.setdefault(sample.subset, []).append(benchmark.score(sample, prediction).score)
    if not scores:
        raise HarnessError(f"--predictions {predictions} has no predictions in its files")
    return PredictionScores(
        benchmark=name,
        predictions=predictions.resolve().name,
        subsets={s: SubsetScore(score=fmean(scores[s]), n=len(scores[s])) for s in benchmark.subsets if s in scores},
        groups=group_means(scores, benchmark.groups),
        score=fmean(map(fmean, scores.values())),
        n_subsets=len(scores),
        of_subsets=len(benchmark.subsets),
    )


def _known(name: str) -> Benchmark:
    """The benchmark, where it reads predictions; else what does is told, nearest first."""
    try:
        benchmark = benchmarks.registry.get(name)
    except BenchmarkError as error:
        if error.__cause__ is not None or ":" in name:  # a plugin that did not load, or a wrong word after the colon
            raise
        told = f"unknown benchmark {name!r}"
    else:
        if _reads(benchmark):
            return benchmark
        told = f"{name} has no format for prediction files"
    able = [other for other in benchmarks.registry.names() if _reads(benchmarks.registry.get(other))]
    raise HarnessError(f"{told}; benchmarks that have one, nearest first: {', '.join(nearest_first(name, able))}")


def _reads(benchmark: Benchmark) -> bool:
    return type(benchmark).read_predictions is not Benchmark.read_predictions


def print_scores(result: PredictionScores) -> None:
    """One figure per subset, then the averages."""
    table = Table(title=f"{result.benchmark}, predictions of {result.predictions}", title_justify="left")
    table.add_column("subset")
    table.add_column("score", justify="right")
    table.add_column("n", justify="right")
    for subset, found in result.subsets.items():
        table.add_row(subset, f"{found.score:.2f}", str(found.n))
    table.add_section()
    for name, group in result.groups.items():
        table.add_row(group_label(name, group.n_subsets, group.of_subsets), f"{group.score:.2f}", str(group.n))
    table.add_section()
    total = sum(found.n for found in result.subsets.values())
    table.add_row(group_label("all", result.n_subsets, result.of_subsets), f"{result.score:.2f}", str(total))
    print_table(table)
