"""Means over named groups of a benchmark's subsets (``Benchmark.groups``), beside the overall mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from harness.results.schema import AVERAGED, Group, Line


def group_means(scores: Mapping[str, Sequence[float]], groups: Mapping[str, Sequence[str]]) -> dict[str, Group]:
    """For each group of which a subset is there: the unweighted mean of its subsets' means, and what it is of.

    scores   the scores of each subset that was run; an empty one (nothing could be scored) leaves its groups without a
             mean
    """
    found: dict[str, Group] = {}
    for name, subsets in groups.items():
        strata = [scores[subset] for subset in subsets if subset in scores]
        if strata:
            found[name] = Group(
                score=fmean(map(fmean, strata)) if all(strata) else None,
                n=sum(map(len, strata)),
                n_subsets=len(strata),
                of_subsets=len(subsets),
            )
    return found


def scores_of(subsets: Mapping[str, Sequence[Line]]) -> dict[str, list[float]]:
    """The scores of each subset's lines that are averaged."""
    return {
        subset: [line.score for line in lines if line.status in AVERAGED and line.score is not None]
        for subset, lines in subsets.items()
    }
