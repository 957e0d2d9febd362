"""Figures worked out anew: pairs and removed fractions of each line, scores, and the summary."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any

from benchmarks.base import BenchmarkError
from harness.analysis.rescore import score_anew
from harness.analysis.run_reader import Reading
from harness.errors import HarnessError
from harness.results.run_folder import AVERAGED, Line
from harness.safe_text import printable, quoted
from harness.validation import completeness
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

#: a fraction is written with all its digits
CLOSE = 1e-9
#: figures of a summary may differ so much between builds of numpy
ROUNDING = 1e-6
#: of what is measured, the pairs it is made of
REMOVED = {
    "removed_context": ("cached_pairs", "kept_pairs"),
    "removed_total": ("cached_pairs_total", "kept_pairs_total"),
}


def check_removed(folder: Submission) -> Iterator[Finding]:
    """What a line says was removed is what its pairs say; the control removes nothing; all variants of a sample had the
    same pairs."""
    caches: dict[tuple[str, str], tuple[int, int | None]] = {}
    for number, line in folder.lines:
        for what in (*_pairs(line), *_over_time(line)):
            yield finding("removed", folder.samples_name, number, what)
        for what in (*_answer(line), *_text(line, folder)):
            yield finding("range", folder.samples_name, number, what)
        if line.cached_pairs is None:
            continue
        own = (line.context_tokens, line.cached_pairs)
        if caches.setdefault((line.sample_id, line.query_mode), own) != own:
            yield finding(
                "removed",
                folder.samples_name,
                number,
                f"has {own[1]:,} pairs of {own[0]:,} tokens, another line of its sample has other numbers",
            )


def _pairs(line: Line) -> Iterator[str]:
    for name, (cached_name, kept_name) in REMOVED.items():
        removed, cached, kept = (getattr(line, field) for field in (name, cached_name, kept_name))
        if line.status in AVERAGED and None in (removed, cached, kept):
            yield f"was answered, but lacks one of {name}, {cached_name}, {kept_name}"
        if cached is None or kept is None:
            continue
        measured = 1 - kept / cached if cached else 0.0
        if kept > cached:
            yield f"{kept_name} is {kept:,}, more than {cached_name}, {cached:,}"
        elif removed is not None and not math.isclose(removed, measured, abs_tol=CLOSE):
            yield f"{name} is {removed:g}, and 1 - {kept_name} / {cached_name} is {measured:g}"
        if line.level_kind == "none" and kept < cached:
            yield f"is of the control, which keeps every pair, but {kept_name} is {kept:,} of {cached:,}"
    if line.cached_pairs and (not line.context_tokens or line.cached_pairs % line.context_tokens):
        yield f"cached_pairs is {line.cached_pairs:,}, no multiple of context_tokens, {line.context_tokens:,}"


def _over_time(line: Line) -> Iterator[str]:
    """The mean over steps, as far as it is known: what is pruned once becomes a smaller part with each token."""
    mean, first = line.removed_time_mean, line.removed_context
    if line.status in AVERAGED and mean is None:
        yield "was answered, but lacks removed_time_mean"
    if mean is None or first is None:
        return
    if line.phase == "prefill" and mean > first + CLOSE:
        yield f"removed_time_mean is {mean:g}, more than removed_context, {first:g}, in phase prefill"
    if line.level_kind == "none" and mean:
        yield f"is of the control, which removes nothing, but removed_time_mean is {mean:g}"
    if line.engine == "masked" and line.physical_bytes is not None:
        yield "has physical_bytes, which the masked engine does not save"


def _text(line: Line, folder: Submission) -> Iterator[str]:
    """What was scored by its text has a text."""
    benchmark = folder.benchmark(line.benchmark)
    forced = benchmark is None or bool(benchmark.teacher_forced)
    if line.status in AVERAGED and line.prediction is None and not forced:
        yield "was answered and scored, but has no prediction"


def _answer(line: Line) -> Iterator[str]:
    """A status that is averaged has a score, any other has none; levels are ones that can be asked for."""
    if (line.status in AVERAGED) != (line.score is not None):
        yield f"has status {line.status} and {'no score' if line.score is None else 'a score'}"
    if line.max_new_tokens is not None and line.generated_tokens > line.max_new_tokens:
        yield f"has {line.generated_tokens:,} generated tokens, of at most {line.max_new_tokens:,}"
    if (line.level_kind == "none") != (line.level is None):
        yield f"has level_kind {line.level_kind} and level {quoted(line.level)}"
    elif line.level is not None:
        fits = {"removed": 0 <= line.level < 1, "keep_tokens": line.level >= 1 and line.level % 1 == 0}
        if not fits.get(line.level_kind, True):
            yield f"has level {quoted(line.level)}, which is no {line.level_kind}"


def check_readable(folder: Submission) -> Iterator[Finding]:
    """Where all is well formed, the readers of the board and of ``report`` find the same lines."""
    if not _sound(folder):
        return
    if isinstance(folder.reading, HarnessError):
        if completeness.lacking(folder):
            return  # that is why, and is said
        text = str(folder.reading).replace(f"{folder.path}{os.sep}", "")
        told = f"is refused by the readers ({printable(text, 200)})"
        yield finding("not-readable", "", None, told)
        return
    items, lines = len(folder.reading.items), len(folder.reading.lines)
    if (items, lines) != (len(folder.items), len(folder.lines)):
        told = f"is read as {lines:,} lines of {items:,} samples, the files have {len(folder.lines):,} of "
        yield finding("not-readable", "", None, f"{told}{len(folder.items):,}")


def check_scores(folder: Submission) -> Iterator[Finding]:
    """Scores of the stored answers by today's scorers, where the folder holds what they read."""
    run = _reading(folder)
    if run is None:
        return
    try:
        outcome = score_anew(run)
    except (HarnessError, BenchmarkError) as error:
        folder.notes.append(f"scores were not made anew: {printable(error, 300)}")
        return
    numbers = {line.key: number for number, line in folder.lines}
    for old, new in outcome.changed:
        told = f"score is {quoted(old.score)}, the answer scores {quoted(new.score)}"
        if old.score == new.score:
            told = "metrics are not those of the answer"
        yield finding("score-differs", folder.samples_name, numbers.get(old.key), told)


def check_summary(folder: Submission) -> Iterator[Finding]:
    """``summary.json`` is what the lines give."""
    run, stored = _reading(folder), folder.summary
    if run is None or stored is None:
        return
    derived = json.loads(json.dumps(run.summarised(run.lines), ensure_ascii=False))
    for what in _differences(stored, derived, ""):
        yield finding("summary-differs", "summary.json", None, what)


def _sound(folder: Submission) -> bool:
    """Whether figures can be made of the files anew; other checks tell where not."""
    if not folder.whole or len({line.key for _, line in folder.lines}) < len(folder.lines):
        return False
    return all(line.sample_id in folder.by_sample for _, line in folder.lines)


def _reading(folder: Submission) -> Reading | None:
    """The run as all readers see it; None where its files are not sound, or :func:`check_readable` tells of it."""
    if not _sound(folder) or any(check_readable(folder)) or isinstance(folder.reading, HarnessError):
        return None
    return folder.reading


def _differences(stored: Any, derived: Any, where: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(derived, dict):
        for name in derived.keys() - stored.keys():
            yield f"{where}{name} is missing"
        for name in stored.keys() - derived.keys():
            yield f"{where}{quoted(name)} is nothing that the lines give"
        for name in derived.keys() & stored.keys():
            yield from _differences(stored[name], derived[name], f"{where}{name}.")
    elif isinstance(stored, list) and isinstance(derived, list):
        if len(stored) != len(derived):
            yield f"{where.rstrip('.')} has {len(stored):,} rows, the lines give {len(derived):,}"
            return
        for index, (one, other) in enumerate(zip(stored, derived, strict=True)):
            yield from _differences(one, other, f"{where}{index}.")
    elif not _same(stored, derived):
        yield f"{where.rstrip('.')} is {quoted(stored)}, the lines give {quoted(derived)}"


def _same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool) and not isinstance(other, bool):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return type(one) is type(other) and bool(one == other)
