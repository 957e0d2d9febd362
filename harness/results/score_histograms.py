"""Score histograms of ``histograms.jsonl``, and what any threshold would remove by them. Without torch."""

from __future__ import annotations

from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from harness.errors import HarnessError
from harness.results import jsonl
from harness.results.run_folder import RunFolder, append_line
from harness.results.schema import Count, Name, Record, Sinks, Text

FILE = "histograms.jsonl"
#: most bins that a row may have
MOST_BINS = 10_000
#: a threshold this near an edge between two bins, in bins, is on it
_ON_EDGE = 1e-6


class Histogram(Record):
    """A row of ``histograms.jsonl``: the scores of a context's pairs that nothing protects, counted by bin.

    low, high   the ends of the bins, which have one width; scores beyond them are in the first or the last bin
    cached      all pairs of the context, protected ones too
    """

    sample_id: Name
    method: Name
    options: Text
    window: Count
    sinks: Sinks
    low: float
    high: float
    counts: list[Count] = Field(min_length=1, max_length=MOST_BINS)
    cached: int = Field(gt=0)

    @model_validator(mode="after")
    def _makes_sense(self) -> Histogram:
        if not self.low < self.high or self.high - self.low == float("inf"):
            raise ValueError("low must be less than high")
        if sum(self.counts) > self.cached:
            raise ValueError("counts must be no more than cached together")
        return self

    @property
    def key(self) -> tuple[str, str, str, int, int | str]:
        """What makes a histogram unique within a run."""
        return self.sample_id, self.method, self.options, self.window, self.sinks

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
        return list(jsonl.parse(Histogram, path.read_bytes())) if path.is_file() else []
    except OSError as error:
        raise HarnessError(f"{path.name} cannot be read: {error}") from error
    except ValueError as error:
        raise HarnessError(f"{path.name}, {error}") from error


class HistogramWriter:
    """Appends to ``histograms.jsonl`` what a run does not have yet; a run without any histogram has no file."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._file: IO[str] | None = None
        try:
            self._known = {histogram.key for histogram in read_histograms(folder.path / FILE)}
        except HarnessError as error:
            raise HarnessError(f"{folder.path}: {error}; run with --force to start over") from error

    def write(self, histogram: Histogram) -> None:
        """Append a histogram, unless it is there already, and flush it to the file."""
        if histogram.key not in self._known:
            self._file = self._file or self._folder.append(FILE)
            append_line(self._file, histogram.to_json())
            self._known.add(histogram.key)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
