"""Figures of benchmarks with several sampled answers per problem: pass@k, its error, counts by rollout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from harness.results.schema import Line

#: a score from here on is a right answer
RIGHT = 100.0


def pass_at_k(answers: int, right: int, k: int) -> float | None:
    """The chance that at least one of ``k`` answers is right, from ``right`` of ``answers`` sampled ones, without bias:
    1 - C(n - c, k) / C(n, k). Chen et al. 2021, arXiv 2107.03374, equation 1. None where k > n: it cannot be told.
    """
    if not 0 <= right <= answers or k < 1:
        raise ValueError(f"pass@k needs 0 <= right <= answers and k >= 1, got {right} of {answers}, k = {k}")
    if k > answers:
        return None
    return 1.0 - math.comb(answers - right, k) / math.comb(answers, k)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean of independent values; None under two."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def rollout_metrics(lines: Iterable[Line], ks: Sequence[int]) -> dict[str, float | None]:
    """Metrics of a cell from its averaged lines; per cent, computed for each problem, then averaged over problems.

    ``pass@k`` for each k, None where a problem has fewer answers; ``pass@1_se``, the standard error over problems of
    their share of right answers (rollouts of one problem are not independent); ``correct_rollout_i``, how many problems
    rollout i got right.
    """
    problems = _problems(lines)
    counts = [(len(own), sum(_right(line) for line in own)) for own in problems.values()]
    found: dict[str, float | None] = {}
    for k in ks:
        each = [pass_at_k(answers, right, k) for answers, right in counts]
        known = [value for value in each if value is not None]
        found[f"pass@{k}"] = 100 * fmean(known) if known and len(known) == len(each) else None
    error = standard_error([right / answers for answers, right in counts])
    found["pass@1_se"] = None if error is None else 100 * error
    for rollout in sorted({line.rollout for own in problems.values() for line in own}):
        right = sum(_right(line) for own in problems.values() for line in own if line.rollout == rollout)
        found[f"correct_rollout_{rollout}"] = float(right)
    return found


def pass_by_problem(lines: Iterable[Line], ks: Sequence[int]) -> dict[str, dict[str, float]]:
    """pass@k in per cent of each problem by its ``sample_id``, for each k that no problem has too few answers for."""
    counts = {name: (len(own), sum(map(_right, own))) for name, own in _problems(lines).items()}
    found: dict[str, dict[str, float]] = {}
    for k in ks:
        each = {name: pass_at_k(answers, right, k) for name, (answers, right) in counts.items()}
        known = {name: 100 * value for name, value in each.items() if value is not None}
        if len(known) == len(each):
            found[f"pass@{k}"] = known
    return found


def _problems(lines: Iterable[Line]) -> dict[str, list[Line]]:
    problems: dict[str, list[Line]] = {}
    for line in lines:
        problems.setdefault(line.sample_id, []).append(line)
    return problems


def _right(line: Line) -> bool:
    return line.score is not None and line.score >= RIGHT
