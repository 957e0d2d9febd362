"""Samples of one subset, straight from its generator."""

from __future__ import annotations

from pathlib import Path

from benchmarks.base import Sample, Text
from benchmarks.ruler.benchmark import generate
from benchmarks.ruler.source_texts import SOURCES


def make(
    subset: str, text: Text, folder: Path | None = None, length: int = 1024, count: int = 2, seed: int = 0
) -> list[Sample]:
    """The first samples of a stream; ``folder`` has the texts of the subsets that need some."""
    source = SOURCES[subset].load(folder).content if subset in SOURCES else None
    return generate(subset, length, seed, count, text, source)


def prompt(sample: Sample) -> str:
    return sample.context + sample.question + sample.answer_prefix
