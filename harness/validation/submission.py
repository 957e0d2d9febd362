"""A run folder as the checks share it: each file opened once, its well-formed rows as objects."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

import benchmarks.registry
from benchmarks.base import Benchmark, BenchmarkError
from harness.analysis.run_reader import Reading, read
from harness.errors import HarnessError
from harness.results.safe_text import printable, quoted
from harness.results.schema import SCHEMA_VERSION, Item, Line, Record, RunRecord, VariantFields
from harness.results.score_histograms import Histogram
from harness.validation.file_tree import SAMPLES, check_tree, entries
from harness.validation.findings import Finding, finding
from harness.validation.json_reader import MOST_WRONG, Loaded, Row, load_object, load_rows

#: codes of files that no check may open
UNOPENED = ("link", "hidden-file", "not-a-file", "too-large")
#: longest name of a benchmark that is looked up
MOST_NAME = 200
#: findings about the form of one row or file
MOST_FORM = 3
T = TypeVar("T", bound=Record)


class Formed(NamedTuple, Generic[T]):
    """The rows of a file that are well formed, each with its line, and what is wrong with the others."""

    rows: list[tuple[int | None, T]]
    findings: list[Finding]


class Submission:
    """One run folder that someone wants to submit. Only making it raises: ``OSError`` where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        inside = entries(path)
        self.present = {entry.name for entry in inside}
        self.tree = list(check_tree(inside))
        self.refused = {one.file for one in self.tree if one.code in UNOPENED}
        #: what could not be checked, and why
        self.notes: list[str] = []

    def has(self, name: str) -> bool:
        """Whether a file is there and may be opened."""
        return name in self.present - self.refused

    def load(self, name: str) -> Loaded:
        path = self.path / name
        if not self.has(name) or (name == "histograms.jsonl" and path.stat().st_size == 0):  # no method has scores
            return Loaded(None, [])
        return load_rows(path) if ".jsonl" in name else load_object(path)

    @cached_property
    def samples_name(self) -> str:
        return next((name for name in reversed(SAMPLES) if self.has(name)), SAMPLES[0])

    @cached_property
    def loaded(self) -> dict[str, Loaded]:
        """Every file's values and what is wrong with its text."""
        names = ("run.json", "items.jsonl", self.samples_name, "histograms.jsonl", "summary.json")
        return {name: self.load(name) for name in names}

    def _formed(self, name: str, model: type[T]) -> Formed[T]:
        return formed(model, name, self.loaded[name].rows or [])

    @cached_property
    def formed_run(self) -> Formed[RunRecord]:
        for row in self.loaded["run.json"].rows or []:
            version = row.value.get("schema_version")
            if type(version) is not int or version != SCHEMA_VERSION:
                told = f"has schema_version {quoted(version)}, this release reads {SCHEMA_VERSION}"
                return Formed([], [finding("schema-version", "run.json", None, told)])
        return self._formed("run.json", RunRecord)

    @cached_property
    def formed_items(self) -> Formed[Item]:
        return self._formed("items.jsonl", Item)

    @cached_property
    def formed_lines(self) -> Formed[Line]:
        return self._formed(self.samples_name, Line)

    @cached_property
    def histograms(self) -> Formed[Histogram]:
        return self._formed("histograms.jsonl", Histogram)

    @property
    def run(self) -> RunRecord | None:
        """``run.json`` where it is well formed."""
        return next((run for _, run in self.formed_run.rows), None)

    @property
    def items(self) -> list[tuple[int | None, Item]]:
        return self.formed_items.rows

    @property
    def lines(self) -> list[tuple[int | None, Line]]:
        return self.formed_lines.rows

    @cached_property
    def samples(self) -> dict[str, Item]:
        """The well-formed items by ``sample_id``."""
        return {item.sample_id: item for _, item in self.items}

    @cached_property
    def variants(self) -> dict[str, VariantFields]:
        """The configuration's variants by label."""
        return {one.variant: one for one in self.run.configuration.variants} if self.run else {}

    @property
    def items_whole(self) -> bool:
        """Whether every row of ``items.jsonl`` is well formed."""
        return len(self.items) == len(self.loaded["items.jsonl"].rows or [])

    @cached_property
    def whole(self) -> bool:
        """Whether run.json, items and lines are all well formed, so that figures can be recomputed."""
        names = ("run.json", "items.jsonl", self.samples_name)
        read = all(self.has(name) and not self.loaded[name].findings for name in names)
        lines = self.loaded[self.samples_name].rows or []
        return read and self.run is not None and self.items_whole and bool(lines) and len(self.lines) == len(lines)

    def value(self, name: str) -> dict[str, Any]:
        """``run.json`` or ``summary.json`` as written, empty where it cannot be read."""
        return next((row.value for row in self.loaded[name].rows or []), {})

    @cached_property
    def reading(self) -> Reading | HarnessError:
        """The run as the leaderboard and ``report`` read it, or why they do not."""
        try:
            run = read(self.path)
            _ = run.items, run.lines
        except HarnessError as error:
            return error
        return run

    def benchmark(self, name: str) -> Benchmark | None:
        """A benchmark that this installation knows; None for any other."""
        try:
            return benchmarks.registry.get(name) if len(name) <= MOST_NAME else None
        except BenchmarkError:
            return None


def check_form(run: Submission) -> Iterator[Finding]:
    """Files, JSON, fields, types and ranges."""
    yield from run.tree
    for loaded in run.loaded.values():
        yield from loaded.findings
    for file in (run.formed_run, run.formed_items, run.formed_lines, run.histograms):
        yield from file.findings


def formed(model: type[T], name: str, rows: list[Row]) -> Formed[T]:
    """A file's rows as ``model`` has them, with nothing unknown and nothing converted; of a file with very many wrong
    ones the rest is not looked at."""
    good: list[tuple[int | None, T]] = []
    found: list[Finding] = []
    wrong = 0
    for row in rows:
        if wrong > MOST_WRONG:
            found.append(finding("too-large", name, row.number, f"has more than {MOST_WRONG} such rows before"))
            break
        try:
            good.append((row.number, model.model_validate(row.value, strict=True, extra="forbid")))
        except ValidationError as error:
            wrong += 1
            found += [finding(code, name, row.number, what) for code, what in _faults(error)]
    return Formed(good, found)


#: kinds of pydantic's errors that are of a value rather than of its type
_VALUES = ("greater_than", "less_than", "finite_number")
_NAMES = ("string_pattern_mismatch", "string_too_long", "string_too_short")
_FIELDS = {"missing": "is missing", "extra_forbidden": "is not a field of a run"}


def _faults(error: ValidationError) -> Iterator[tuple[str, str]]:
    for one in error.errors(include_url=False)[:MOST_FORM]:
        kind, where = one["type"], ".".join(printable(part, 40) for part in one["loc"])
        code = "range" if kind.startswith(_VALUES) else "bad-name" if kind in _NAMES else "schema"
        told = _FIELDS.get(kind) or f"is {quoted(one['input'])}: {one['msg'][:200]}"
        yield code, f"{where or 'it'} {told}"
    if error.error_count() > MOST_FORM:
        yield "schema", f"and {error.error_count() - MOST_FORM:,} more of its kind"
