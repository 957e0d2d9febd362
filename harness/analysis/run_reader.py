"""Run folders read back without a model: what was configured, the summary, and the lines where they are needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from harness.analysis.summary import summarise
from harness.errors import HarnessError
from harness.results import jsonl
from harness.results.discovery import is_run, run_folders
from harness.results.run_folder import RunFolder
from harness.results.safe_text import printable
from harness.results.schema import Configuration, Facts, Item, Line, RunRecord, Summary, VariantFields

#: what a summary of this release has
PARTS = {"lines", "cells", "pairs", "ranks", "curves", "alarms"}


@dataclass(frozen=True)
class Reading:
    """One run folder. ``run`` is the content of ``run.json``."""

    folder: RunFolder
    run: RunRecord

    @property
    def name(self) -> str:
        return printable(Path(os.path.realpath(self.folder.path)).name)

    @property
    def configuration(self) -> Configuration:
        return self.run.configuration

    @property
    def seed(self) -> int:
        return self.run.seeds.run

    @property
    def facts(self) -> dict[str, Facts]:
        """What the run wrote down of its benchmarks."""
        return self.run.facts

    @cached_property
    def lines(self) -> list[Line]:
        """All lines; :class:`HarnessError` where some of a run that was complete are gone."""
        found = self.folder.lines()
        self._check_whole(len(found))
        if len({line.key for line in found}) < len(found):
            raise HarnessError(f"{self.folder.path} has doubled lines; take samples.jsonl from a copy")
        return found

    @cached_property
    def items(self) -> dict[str, Item]:
        """The rows of ``items.jsonl`` by ``sample_id``; none where the file is missing."""
        path = self.folder.file("items.jsonl")
        try:
            data = path.read_bytes() if path else b""
            return {item.sample_id: item for item in jsonl.parse(Item, data, appended=False)}
        except (OSError, ValueError) as error:
            raise HarnessError(
                f"{path} is damaged ({error}); take it from a copy, or run again with --force"
            ) from error

    @cached_property
    def stored(self) -> Summary | None:
        """``summary.json`` as it is; None where it is missing or damaged."""
        try:
            return self.folder.summary()
        except HarnessError:
            return None

    @cached_property
    def summary(self) -> Summary:
        """``summary.json`` where it is complete and of this release, else derived from the lines again.

        :class:`HarnessError` where lines of a complete run are gone. They are counted, not parsed: what is wrong inside
        of one shows where ``lines`` are read.
        """
        kept = self.stored
        if kept and kept.complete and kept.model_fields_set >= PARTS:
            self._check_whole(self.folder.count())
            return kept
        return self.summarised(self.lines)

    def _check_whole(self, count: int) -> None:
        """Raise where the run had more than ``count`` lines when it was summarised as complete."""
        stored, path = self.stored, self.folder.samples
        expected = self.expected if stored is None or stored.lines is None else stored.lines
        if stored is not None and stored.complete and expected is not None and count < expected:
            has = f"{path} has {count:,} of" if path else f"{self.folder.path / 'samples.jsonl'} is gone, with"
            raise HarnessError(
                f"{has} the {expected:,} lines that the run had when it was summarised; take it from a copy, or run "
                "the same command with --resume"
            )

    def summarised(self, lines: Sequence[Line]) -> Summary:
        """The summary of ``lines``, which may be rescored ones of this run."""
        return summarise(lines, self.facts, self.expected in (None, len(lines)), self.seed, self.unsupported)

    @property
    def expected(self) -> int | None:
        """Lines of the complete run; None where the folder does not tell."""
        answers = self.run.answers
        counts = [
            answers[item.benchmark].rollouts if item.benchmark in answers else [1] for item in self.items.values()
        ]
        if not counts or any(len(count) != 1 for count in counts):
            return None
        return sum(count[0] for count in counts) * len(self.configuration.variants)

    @property
    def unsupported(self) -> list[tuple[VariantFields, str]]:
        """Variants that could not prune in the run's phase, with the note of their cells."""
        cells = self.stored.cells if self.stored else []
        notes = {cell.variant: cell.note for cell in cells if cell.status == "unsupported"}
        return [(one, notes.get(one.variant, f"not in phase {one.phase}")) for one in self.run.unsupported]


class Found(NamedTuple):
    """The runs in some folders, and what of them could not be read."""

    runs: list[Reading]
    notes: list[str]


def read(path: Path) -> Reading:
    """One run folder; :class:`HarnessError` where it is none or damaged."""
    if not os.path.isdir(path):
        raise HarnessError(f"{path} is not a folder; give a run folder{_nearby(path)}")
    if not os.path.isfile(path / "run.json"):
        inside = [run.parent.name for run in sorted(path.glob("*/run.json"))]
        hint = f"one of the run folders in it: {', '.join(inside)}" if inside else "a folder that `harness run` made"
        raise HarnessError(f"{path} has no run.json; give {hint}")
    folder = RunFolder(path)
    return Reading(folder, folder.run())


def find(*paths: Path) -> Found:
    """The run at each path, or all runs in it, up to two folders down; none twice. A damaged one is told of, not fatal,
    unless it was itself named; so is one that lies elsewhere, with a link to it in the path."""
    parts = [_find(path) for path in paths]
    runs = {os.path.realpath(run.folder.path): run for part in parts for run in part.runs}
    return Found(list(runs.values()), list(dict.fromkeys(note for part in parts for note in part.notes)))


def _find(path: Path) -> Found:
    if is_run(path):
        return Found([checked(read(path))], [])
    if not os.path.isdir(path):
        raise HarnessError(f"{path} is not a folder; give a run folder or a folder of them{_nearby(path)}")
    runs, notes, seen = [], [], set()
    for folder in run_folders(path):
        try:
            home = _inside(folder, path)
            if home not in seen:  # a link may lead to a run that is here too
                seen.add(home)
                runs.append(checked(read(folder)))
        except HarnessError as error:
            notes.append(printable(f"left out: {error}"))
    if not runs:
        told = "; ".join(notes) if notes else "it has no run folders"
        raise HarnessError(f"{path}: nothing to read ({told}); `kvprune run --out {path}` makes runs")
    return Found(runs, notes)


def _inside(folder: Path, path: Path) -> str:
    """Where a run folder really lies, which must be in ``path``."""
    home = os.path.realpath(folder)
    if not Path(home).is_relative_to(os.path.realpath(path)):
        raise HarnessError(f"{folder} is a link that leads out of {path}; put the folder itself there")
    return home


def checked(run: Reading) -> Reading:
    """Reads what a report needs, so that damage shows here."""
    _ = run.items
    if not run.summary.cells:
        raise HarnessError(f"{run.folder.path} has no answers yet; run the same command with --resume")
    return run


def _nearby(path: Path) -> str:
    parent = path.parent
    there = sorted(run.parent.name for run in parent.glob("*/run.json")) if parent.is_dir() else []
    return f" (in {parent}: {', '.join(there)})" if there else ""
