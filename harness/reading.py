"""Run folders read back without a model: what was configured, the summary, and the lines where they are needed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import HarnessError
from harness.results import Line, RunFolder
from harness.summary import BenchmarkFacts, summarise


@dataclass(frozen=True)
class Reading:
    """One run folder. ``run`` is the content of ``run.json``."""

    folder: RunFolder
    run: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def configuration(self) -> dict[str, Any]:
        return dict(self.run.get("configuration") or {})

    @property
    def seed(self) -> int:
        return int((self.run.get("seeds") or {}).get("run", self.configuration.get("seed", 0)))

    @property
    def facts(self) -> dict[str, BenchmarkFacts]:
        """What the run wrote down of its benchmarks; fields that this release does not know are passed over."""
        return {
            name: BenchmarkFacts(**{key: _tupled(fact[key]) for key in BenchmarkFacts._fields if key in fact})
            for name, fact in (self.run.get("facts") or {}).items()
        }

    @cached_property
    def lines(self) -> list[Line]:
        """All lines; :class:`HarnessError` where some of a run that was complete are gone."""
        found, expected = self.folder.lines(), self.expected
        if (self.stored or {}).get("complete") and expected is not None and len(found) < expected:
            raise HarnessError(
                f"{self.folder.path / 'samples.jsonl'} has {len(found):,} of the {expected:,} lines that the run had "
                "when it was summarised; take it from a copy, or run the same command with --resume"
            )
        return found

    @cached_property
    def items(self) -> dict[str, dict[str, Any]]:
        """The rows of ``items.jsonl`` by ``sample_id``; none where the file is missing."""
        path = self.folder.path / "items.jsonl"
        try:
            # not splitlines, which takes characters within a text for a line's end
            rows = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
            return {row["sample_id"]: row for row in map(json.loads, filter(None, rows))}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HarnessError(f"{path} is damaged ({error}); take it from a copy, or run with --force anew") from error

    @cached_property
    def stored(self) -> dict[str, Any] | None:
        """``summary.json`` as it is; None where it is missing or damaged."""
        try:
            return self.folder.summary()
        except HarnessError:
            return None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """``summary.json`` where it is complete and of this release, else derived from the lines anew."""
        kept = self.stored
        if kept and kept.get("complete") and {"cells", "pairs", "ranks", "curves", "alarms"} <= kept.keys():
            return kept
        return self.summarised(self.lines)

    def summarised(self, lines: Sequence[Line]) -> dict[str, Any]:
        """The summary of ``lines``, which may be rescored ones of this run."""
        return summarise(lines, self.facts, self.expected in (None, len(lines)), self.seed, self.unsupported)

    @property
    def expected(self) -> int | None:
        """Lines of the complete run; None where the folder does not tell."""
        answers, variants = self.run.get("answers") or {}, self.configuration.get("variants") or []
        counts = [(answers.get(row["benchmark"]) or {}).get("rollouts", [1]) for row in self.items.values()]
        if not counts or not variants or any(len(count) != 1 for count in counts):
            return None
        return sum(count[0] for count in counts) * len(variants)

    @property
    def unsupported(self) -> list[dict[str, Any]]:
        """Variants that could not prune in the run's phase, with the note of their cells."""
        cells = (self.stored or {}).get("cells", [])
        notes = {cell["variant"]: cell["note"] for cell in cells if cell.get("status") == "unsupported"}
        variants = self.run.get("unsupported") or []
        return [{**v, "note": notes.get(v["variant"], f"not in phase {v['phase']}")} for v in variants]


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Found(NamedTuple):
    """The runs in a folder, and what of it could not be read."""

    runs: list[Reading]
    notes: list[str]


def read(path: Path) -> Reading:
    """One run folder; :class:`HarnessError` where it is none or damaged."""
    if not path.is_dir():
        raise HarnessError(f"{path} is not a folder; give a run folder{_nearby(path)}")
    if not (path / "run.json").is_file():
        inside = [run.parent.name for run in sorted(path.glob("*/run.json"))]
        hint = f"one of the run folders in it: {', '.join(inside)}" if inside else "a folder that `harness run` made"
        raise HarnessError(f"{path} has no run.json; give {hint}")
    folder = RunFolder(path)
    return Reading(folder, folder.run())


def find(path: Path) -> Found:
    """The run at ``path``, or all runs in it, up to two folders down. A damaged one is told of, not fatal, unless it
    was itself asked for."""
    if (path / "run.json").is_file():
        return Found([_checked(read(path))], [])
    if not path.is_dir():
        raise HarnessError(f"{path} is not a folder; give a run folder or a folder of them{_nearby(path)}")
    runs, notes = [], []
    for folder in _folders(path):
        try:
            runs.append(_checked(read(folder)))
        except HarnessError as error:
            notes.append(f"left out: {error}")
    if not runs:
        told = "; ".join(notes) if notes else "it has no run folders"
        raise HarnessError(f"{path}: nothing to read ({told}); `python -m harness run --out {path}` makes runs")
    return Found(runs, notes)


def _checked(run: Reading) -> Reading:
    """Reads what a report needs, so that damage shows here."""
    lines = run.summary["cells"]
    _ = run.items
    if not lines:
        raise HarnessError(f"{run.folder.path} has no answers yet; run the same command with --resume")
    return run


def _folders(path: Path) -> Iterator[Path]:
    names = ("run.json", "samples.jsonl", "samples.jsonl.gz")
    hits = {file.parent for depth in ("*", "*/*") for name in names for file in path.glob(f"{depth}/{name}")}
    yield from sorted(hits)


def _nearby(path: Path) -> str:
    parent = path.parent
    there = sorted(run.parent.name for run in parent.glob("*/run.json")) if parent.is_dir() else []
    return f" (in {parent}: {', '.join(there)})" if there else ""
