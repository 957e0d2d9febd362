"""Stored score histograms: what any threshold would remove of a prompt, without running it.

A prompt is a context: what is pruned before the first question token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field, ValidationError, model_validator

from harness.errors import HarnessError
from leaderboard.library import Entry, Group

#: most bins that a row may have
MOST_BINS = 10_000
#: a threshold this near an edge between two bins, in bins, is on it
_ON_EDGE = 1e-6


class Source(NamedTuple):
    """Whose scores, and which pairs they may not remove."""

    method: str
    options: str
    window: int
    sinks: str

    @classmethod
    def of(cls, row: Any) -> Source:
        """That of a line or a histogram."""
        return cls(row.method, row.options, row.window, str(row.sinks))


class Histogram(BaseModel):
    """A row of ``histograms.jsonl``: the scores of a context's pairs that nothing protects, counted by bin.

    low, high   the ends of the bins, which have one width; scores beyond them are in the first or the last bin
    cached      all pairs of the context, protected ones too
    """

    sample_id: str
    method: str
    options: str
    window: int
    sinks: int | str
    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    counts: list[int] = Field(min_length=1, max_length=MOST_BINS)
    cached: int = Field(gt=0)

    @model_validator(mode="after")
    def _makes_sense(self) -> Histogram:
        if not self.low < self.high or self.high - self.low == float("inf"):
            raise ValueError("low must be less than high")
        if min(self.counts) < 0 or sum(self.counts) > self.cached:
            raise ValueError("counts must be 0 or more and no more than cached together")
        return self

    @property
    def width(self) -> float:
        return (self.high - self.low) / len(self.counts)

    @property
    def edges(self) -> np.ndarray:
        return self.low + self.width * np.arange(len(self.counts) + 1)

    @property
    def below(self) -> np.ndarray:
        """The fraction of all cached pairs under each edge; exact but for scores beyond the ends."""
        return np.concatenate([[0], np.cumsum(self.counts)]) / self.cached


class Told(NamedTuple):
    """Fraction of a context's pairs that a threshold removes: surely, by even spread within the bin, at most."""

    least: float
    likely: float
    most: float


def told(histogram: Histogram, tau: float) -> Told:
    """What ``tau`` would remove of the context: the pairs in bins under it, and those of its own bin by how much of the
    bin lies under it. On an edge between two bins there is no error; beyond the ends it is the end's whole bin."""
    below, bins = histogram.below, len(histogram.counts)
    place = (tau - histogram.low) / histogram.width
    if place <= _ON_EDGE:
        return Told(0.0, 0.0, float(below[1]))
    if place >= bins - _ON_EDGE:
        return Told(float(below[-2]), float(below[-1]), float(below[-1]))
    if abs(place - round(place)) < _ON_EDGE:
        return Told(*[float(below[round(place)])] * 3)
    first = int(place)
    least, most = float(below[first]), float(below[first + 1])
    return Told(least, least + (place - first) * (most - least), most)


def read_histograms(path: Path) -> list[Histogram]:
    """``histograms.jsonl``; none where there is no such file. A broken line: :class:`HarnessError` with its number; a
    last one that a kill left unfinished is passed over."""
    try:
        rows = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    except OSError as error:
        raise HarnessError(f"{path.name} cannot be read: {error}") from error
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(Histogram.model_validate_json(row))
        except ValidationError as error:
            if number == len(rows) and not row.endswith(b"\n"):
                break
            raise HarnessError(f"{path.name}, line {number}: {error.errors()[0]['msg']}") from error
    return found


class Prompt(NamedTuple):
    """One context of a place (a benchmark and length) and what is known of its scores."""

    place: str
    subset: str
    sample_id: str
    histogram: Histogram


def told_table(prompts: Sequence[Prompt], tau: float) -> pd.DataFrame:
    """A row a prompt: ``place, subset, prompt, removed, least, most``."""
    found = []
    for prompt in prompts:
        least, likely, most = told(prompt.histogram, tau)
        place = {"place": prompt.place, "subset": prompt.subset, "prompt": prompt.sample_id}
        found.append({**place, "removed": likely, "least": least, "most": most})
    return pd.DataFrame(found, columns=["place", "subset", "prompt", "removed", "least", "most"])


def curves(prompts: Sequence[Prompt], by: str = "place") -> pd.DataFrame:
    """What each threshold between two bins would remove, without an error of binning: a row a place (or subset) and
    edge, ``name, tau, mean, low, high``, the last two the 10th and 90th percentile over its prompts."""
    groups: dict[tuple[Any, ...], list[Histogram]] = {}
    for prompt in prompts:
        one = prompt.histogram
        groups.setdefault((getattr(prompt, by), one.low, one.high, len(one.counts)), []).append(one)
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
                place = (str(item.get("benchmark")), item.get("length"), str(item.get("subset")))
                found.append(Stored(str(entry.path), *place, one))
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
