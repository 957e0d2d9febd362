"""The summary of a run: one cell a variant, benchmark, subset and length; derived from the lines alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from harness.groups import group_means, scores_of
from harness.results import AVERAGED, SCHEMA_VERSION, Line, VariantFields
from harness.stats import mean_interval

#: a control below this (or at chance) carries no comparison
FLOOR = 20.0


class BenchmarkFacts(NamedTuple):
    """What a summary needs to know of a benchmark."""

    subsets: int
    chance: float
    groups: Mapping[str, tuple[str, ...]] = {}


Group = tuple[str, int | None]  # benchmark, length


def summarise(lines: Sequence[Line], facts: dict[str, BenchmarkFacts], complete: bool, seed: int = 0) -> dict[str, Any]:
    """Cells in the order in which variants and subsets first appear."""
    cells: list[dict[str, Any]] = []
    for (benchmark, length), group in _by(lines, lambda line: (line.benchmark, line.length)).items():
        fact = facts.get(benchmark, BenchmarkFacts(0, 0.0))
        by_variant = _by(group, lambda line: line.variant)
        control = next((v for v, own in by_variant.items() if own[0].level_kind == "none"), None)
        floors = _floors(by_variant[control] if control else [], fact.chance)
        for own in by_variant.values():
            subsets = _by(own, lambda line: line.subset)
            for subset, some in subsets.items():
                cells.append(_cell(benchmark, length, subset, {subset: some}, floors.get(subset, False), seed))
            floor = _at_floor(by_variant[control], fact.chance) if control else False
            overall = _cell(benchmark, length, None, subsets, floor, seed)
            overall["of_subsets"] = fact.subsets or None
            overall["groups"] = group_means(scores_of(subsets), fact.groups)
            cells.append(overall)
    return {"schema_version": SCHEMA_VERSION, "complete": complete, "cells": cells}


def _cell(
    benchmark: str, length: int | None, subset: str | None, subsets: dict[str, list[Line]], floor: bool, seed: int
) -> dict[str, Any]:
    lines = [line for some in subsets.values() for line in some]
    counted = [line for line in lines if line.status in AVERAGED]
    strata = [[line.score for line in some if line.status in AVERAGED] for some in subsets.values()]
    scores = [[score for score in stratum if score is not None] for stratum in strata]
    whole = all(scores)
    interval = mean_interval(scores, seed) if whole else None
    removed = [value for line in counted if (value := removed_of(line)) is not None]
    metrics: dict[str, list[float]] = defaultdict(list)
    for line in counted:
        for name, value in line.metrics.items():
            metrics[name].append(value)
    return {
        **lines[0].model_dump(include=set(VariantFields.model_fields)),
        "benchmark": benchmark,
        "subset": subset,
        "length": length,
        "score": fmean(map(fmean, scores)) if whole else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "n": len(counted),
        "n_subsets": len(subsets),
        "n_failed": len(lines) - len(counted),
        "removed_mean": fmean(removed) if removed else None,
        "removed_min": min(removed, default=None),
        "removed_max": max(removed, default=None),
        "requested_removed": lines[0].requested_removed,
        "n_cut": sum(line.prompt_cut for line in counted),
        "floor": floor,
        "bound_by": "protection" if any(line.bound_by for line in counted) else None,
        "metrics": {name: fmean(values) for name, values in metrics.items()},
    }


def removed_of(line: Line) -> float | None:
    """The x-axis: measured removed fraction of the context for phase prefill, the mean over time otherwise."""
    return line.removed_context if line.phase == "prefill" else line.removed_time_mean


def _floors(control: Iterable[Line], chance: float) -> dict[str, bool]:
    """For each subset whether its control lies at the floor: at chance, or under 20."""
    return {subset: _at_floor(some, chance) for subset, some in _by(control, lambda line: line.subset).items()}


def _at_floor(control: Iterable[Line], chance: float) -> bool:
    by_subset = _by(control, lambda line: line.subset).values()
    means = [fmean(scores) for some in by_subset if (scores := [ln.score for ln in some if ln.score is not None])]
    return bool(means) and fmean(means) <= max(chance, FLOOR - 1e-9)


def _by(lines: Iterable[Line], key: Any) -> dict[Any, list[Line]]:
    groups: dict[Any, list[Line]] = {}
    for line in lines:
        groups.setdefault(key(line), []).append(line)
    return groups
