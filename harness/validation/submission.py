"""A run folder as the checks share it: each file opened once, with what is wrong in its text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import benchmarks.registry
from benchmarks.base import Benchmark, BenchmarkError
from harness.analysis.run_reader import Reading, read
from harness.errors import HarnessError
from harness.results.run_folder import Line, VariantFields
from harness.validation.file_tree import SAMPLES, unopened
from harness.validation.findings import Finding
from harness.validation.json_reader import Loaded, Row, load_object, load_rows
from harness.validation.schema import HISTOGRAM, ITEM, LINE, Histogram, Item, Sound, sound, sound_run

#: longest name of a benchmark that is looked up
MOST_NAME = 200


class Submission:
    """One run folder that someone wants to submit. Nothing here raises on what its files hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unopened = unopened(path)
        #: what could not be checked, and why
        self.notes: list[str] = []

    def has(self, name: str) -> bool:
        """Whether a file is there and may be opened."""
        return name not in self.unopened and (self.path / name).is_file()

    def load(self, name: str) -> Loaded:
        if not self.has(name):
            return Loaded(None, [], [])
        if name == "histograms.jsonl" and (self.path / name).stat().st_size == 0:
            return Loaded(None, [], [])  # of methods without score histograms
        return (load_rows if ".jsonl" in name else load_object)(self.path / name, name)

    @cached_property
    def samples_name(self) -> str:
        return next((name for name in reversed(SAMPLES) if self.has(name)), SAMPLES[0])

    @cached_property
    def loaded(self) -> dict[str, Loaded]:
        """Every file's values and what is wrong with its text."""
        names = ("run.json", "items.jsonl", self.samples_name, "histograms.jsonl", "summary.json")
        return {name: self.load(name) for name in names}

    @property
    def raw_run(self) -> dict[str, Any]:
        value = self.loaded["run.json"].value
        return value if isinstance(value, dict) else {}

    @cached_property
    def run(self) -> dict[str, Any] | None:
        """``run.json`` where it has all of its fields; else None, and the schema's findings say why."""
        value = self.loaded["run.json"].value
        return value if isinstance(value, dict) and not any(sound_run(value)) else None

    @property
    def summary(self) -> dict[str, Any] | None:
        value = self.loaded["summary.json"].value
        return value if isinstance(value, dict) else None

    @cached_property
    def items(self) -> list[Row]:
        """The rows of ``items.jsonl`` that are well formed."""
        good = {number for number, _ in self.sound_items.rows}
        return [row for row in self.loaded["items.jsonl"].rows if row.number in good]

    @cached_property
    def sound_items(self) -> Sound[Item]:
        return sound(ITEM, "items.jsonl", self.loaded["items.jsonl"].rows)

    @cached_property
    def sound_lines(self) -> Sound[Line]:
        return sound(LINE, self.samples_name, self.loaded[self.samples_name].rows)

    @cached_property
    def histograms(self) -> Sound[Histogram]:
        return sound(HISTOGRAM, "histograms.jsonl", self.loaded["histograms.jsonl"].rows)

    @cached_property
    def by_sample(self) -> dict[str, dict[str, Any]]:
        return {row.value["sample_id"]: row.value for row in self.items}

    @property
    def lines(self) -> list[tuple[int, Line]]:
        """The lines that are well formed, each with its number."""
        return self.sound_lines.rows

    @cached_property
    def whole(self) -> bool:
        """Whether record, items and lines can all be read, so that figures can be made of them anew."""
        names = ("run.json", "items.jsonl", self.samples_name)
        read = all(self.has(name) and not self.loaded[name].findings for name in names)
        rows = self.loaded[self.samples_name].rows
        return read and self.run is not None and len(self.lines) == len(rows) and bool(rows) and self._items_whole

    @cached_property
    def reading(self) -> Reading | HarnessError:
        """The run as the board and ``report`` read it, or why they do not."""
        try:
            run = read(self.path)
            _ = run.items, run.lines
        except HarnessError as error:
            return error
        return run

    @property
    def _items_whole(self) -> bool:
        return len(self.items) == len(self.loaded["items.jsonl"].rows)

    @property
    def variants(self) -> dict[str, VariantFields]:
        """The configuration's variants by label."""
        rows = (self.run or {}).get("configuration", {}).get("variants", [])
        return {row["variant"]: VariantFields.model_validate(row) for row in rows}

    def benchmark(self, name: str) -> Benchmark | None:
        """A benchmark that this installation knows; None for any other."""
        if len(name) > MOST_NAME:
            return None
        try:
            return benchmarks.registry.get(name)
        except BenchmarkError:
            return None

    def text_findings(self) -> Iterator[Finding]:
        for loaded in self.loaded.values():
            yield from loaded.findings
