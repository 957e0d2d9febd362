"""Stored score histograms: what any threshold would remove of a prompt, without running it.

A prompt is a context: what is pruned before the first question token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.errors import HarnessError
from harness.results.schema import VariantFields
from harness.results.score_histograms import Histogram, read_histograms, told
from leaderboard.data.library import Entry, Group


class Source(NamedTuple):
    """Whose scores, and which pairs they may not remove."""

    method: str
    options: str
    window: int
    sinks: str

    @classmethod
    def of(cls, row: VariantFields | Histogram) -> Source:
        """That of a line, a cell or a histogram."""
        return cls(row.method, row.options, row.window, str(row.sinks))


class Prompt(NamedTuple):
    """One context of a place (a benchmark and length) and what is known of its scores."""

    place: str
    subset: str
    sample_id: str
    histogram: Histogram


def told_table(prompts: Sequence[Prompt], tau: float) -> pd.DataFrame:
    """A row a prompt: ``place, subset, prompt, removed, least, most``."""
    found = []
    for place, subset, sample, histogram in prompts:
        least, likely, most = told(histogram, tau)
        found.append((place, subset, sample, likely, least, most))
    return pd.DataFrame(found, columns=["place", "subset", "prompt", "removed", "least", "most"])


def curves(prompts: Sequence[Prompt]) -> pd.DataFrame:
    """What each threshold between two bins would remove, without an error of binning: a row per place and edge, ``name,
    tau, mean, low, high``, the last two the 10th and 90th percentile over its prompts."""
    groups: dict[tuple[Any, ...], list[Histogram]] = {}
    for prompt in prompts:
        one = prompt.histogram
        groups.setdefault((prompt.place, one.low, one.high, len(one.counts)), []).append(one)
    tables = []
    for (name, *_), own in groups.items():
        below = np.stack([one.below for one in own])
        low, high = np.quantile(below, [0.1, 0.9], axis=0)
        tables.append(
            pd.DataFrame({"name": name, "tau": own[0].edges, "mean": below.mean(axis=0), "low": low, "high": high})
        )
    return (
        pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["name", "tau", "mean", "low", "high"])
    )


def span(prompts: Sequence[Prompt]) -> tuple[float, float, float]:
    """The thresholds that make a difference: from the first to the last edge beside a bin with counts; and the width
    of the finest bins."""
    first, last = [], []
    for prompt in prompts:
        one = prompt.histogram
        filled = np.flatnonzero(one.counts)
        if len(filled):
            first.append(float(one.edges[filled[0]]))
            last.append(float(one.edges[filled[-1] + 1]))
    if not first:
        first, last = [prompts[0].histogram.low], [prompts[0].histogram.high]
    return min(first), max(last), min(prompt.histogram.width for prompt in prompts)


class Stored(NamedTuple):
    """A histogram, the run folder's name and the place of its sample in the run."""

    run: str
    benchmark: str
    length: int | None
    subset: str
    histogram: Histogram


def stored(entries: Iterable[Entry]) -> tuple[list[Stored], list[str]]:
    """The histograms of all runs; and of those that cannot be read, why."""
    found, broken = [], []
    for entry in entries:
        try:
            items = entry.reading.items
            own = read_histograms(entry.path / "histograms.jsonl")
        except HarnessError as error:
            broken.append(f"{entry.name}: {error}")
            continue
        for one in own:
            item = items.get(one.sample_id)
            if item is not None:
                found.append(Stored(str(entry.path), item.benchmark, item.length, item.subset, one))
    return found, broken


def prompts_of(found: Iterable[Stored], groups: Mapping[str, Group], source: Source) -> list[Prompt]:
    """The prompts of ``groups`` (by their names as places) with scores of ``source``; a prompt in two runs counts
    once."""
    runs = {
        (str(entry.path), group.part.benchmark, group.part.length): name
        for name, group in groups.items()
        for entry in group.entries
    }
    known: dict[tuple[str, str], Prompt] = {}
    for run, benchmark, length, subset, histogram in found:
        name = runs.get((run, benchmark, length))
        if name is not None and Source.of(histogram) == source:
            known.setdefault((name, histogram.sample_id), Prompt(name, subset, histogram.sample_id, histogram))
    return list(known.values())
