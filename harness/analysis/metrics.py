"""Further figures beside a cell's score: means of the lines' metrics, their intervals, and their differences from the
control's. Means and intervals are made as those of scores are: over rollouts, then samples, then subsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from harness.analysis.grouping import Place, PlaceLines, by_place
from harness.analysis.paired_tests import Scored, contexts_of, differences
from harness.analysis.pass_at_k import pass_by_problem, rollout_metrics
from harness.analysis.stats import Interval, mean_intervals
from harness.results.schema import AVERAGED, Line, MetricDifference, Pair

#: low and high
Bounds = list[float]


class Metrics(NamedTuple):
    """``means`` of all metrics; ``intervals`` of those that are means over samples, where there is one."""

    means: dict[str, float | None]
    intervals: dict[str, Bounds]


def of_cell(lines: Sequence[Line], subsets: Collection[str], pass_at: Sequence[int] = (), seed: int = 0) -> Metrics:
    """Metrics of a cell over ``subsets`` from its averaged lines; with ``pass_at`` what several answers a problem give.

    A metric that a subset lacks is a mean over the others, and has no interval. pass@k is a mean over problems,
    whatever their subset.
    """
    values = by_sample(lines)
    means: dict[str, float | None] = {name: _mean(own) for name, own in values.items()}
    whole = {name: own for name, own in values.items() if {one.subset for one in own.values()} == set(subsets)}
    if pass_at:
        means |= rollout_metrics(lines, pass_at)
        for name, passed in ((name, some) for name, some in pass_by_problem(lines, pass_at).items() if some):
            whole[name] = {sample: Scored("", value) for sample, value in passed.items()}
    return Metrics(means, _intervals(whole, contexts_of(lines), seed))


def by_sample(lines: Iterable[Line]) -> dict[str, dict[str, Scored]]:
    """Of each metric the samples that have it, each with the mean over its rollouts."""
    found: dict[str, dict[str, list[float]]] = {}
    subsets: dict[str, str] = {}
    for line in lines:
        subsets[line.sample_id] = line.subset
        for name, value in line.metrics.items():
            found.setdefault(name, {}).setdefault(line.sample_id, []).append(value)
    return {
        name: {sample: Scored(subsets[sample], fmean(values)) for sample, values in own.items()}
        for name, own in found.items()
    }


def differences_from_control(groups: Mapping[Place, PlaceLines], pairs: Iterable[Pair], seed: int = 0) -> None:
    """Give each of ``pairs`` that is with the control its ``metrics``: paired differences by name, each with
    ``difference, low, high``.

    A metric that is the same on all of the control's samples (its KL is 0) is left out: the difference would be the
    metric once more, less a constant.
    """
    places = by_place(pair for pair in pairs if pair.against == "control")
    for place, some in places.items():
        own = groups[place].variants
        values = {name: by_sample(ln for ln in own[name] if ln.status in AVERAGED) for name in own}
        wanted = [
            (pair, name)
            for pair in some
            for name in values[pair.a]
            if len({scored.score for scored in values[pair.b].get(name, {}).values()}) > 1
        ]
        contexts = contexts_of(groups[place].lines)
        made = differences([(values[pair.a][name], values[pair.b][name]) for pair, name in wanted], seed, contexts)
        for pair in some:
            pair.metrics = {}
        for (pair, name), (difference, interval) in zip(wanted, made, strict=True):
            low, high = interval or (None, None)
            pair.metrics[name] = MetricDifference(difference=difference, low=low, high=high)


def _strata(own: Mapping[str, Scored]) -> dict[str, list[str]]:
    """The samples of each subset."""
    found: dict[str, list[str]] = {}
    for sample, scored in own.items():
        found.setdefault(scored.subset, []).append(sample)
    return found


def _mean(own: Mapping[str, Scored]) -> float:
    return fmean(fmean(own[sample].score for sample in samples) for samples in _strata(own).values())


def _intervals(values: Mapping[str, Mapping[str, Scored]], contexts: Mapping[str, str], seed: int) -> dict[str, Bounds]:
    """Metrics of the same samples share their draws."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, own in values.items():
        alike.setdefault(tuple(own), []).append(name)
    found: dict[str, Interval | None] = {}
    for names in alike.values():
        strata = list(_strata(values[names[0]]).values())
        tables = [np.array([[values[name][sample].score for name in names] for sample in own]) for own in strata]
        units = [[contexts[sample] for sample in own] for own in strata]
        found |= zip(names, mean_intervals(tables, seed, units=units), strict=True)
    return {name: [*interval] for name in values if (interval := found[name]) is not None}
