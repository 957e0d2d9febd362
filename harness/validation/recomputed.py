"""Recomputed figures: pairs and removed fractions of each line, scores, and the summary."""

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
from harness.results.safe_text import printable, quoted
from harness.results.schema import AVERAGED, Line, Summary
from harness.validation import completeness
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission, formed

#: a fraction is written with all its digits
CLOSE = 1e-9
#: figures of a summary may differ by this much between builds of numpy
ROUNDING = 1e-6
#: removed fractions and the pairs that they are computed from
REMOVED = {
    "removed_context": ("cached_pairs", "kept_pairs"),
    "removed_total": ("cached_pairs_total", "kept_pairs_total"),
}


def check_lines(run: Submission) -> Iterator[Finding]:
    """Removed fractions are those of the pairs; the control removes nothing; all variants of a sample had the same
    pairs; statuses, scores and levels go together."""
    caches: dict[tuple[str, str], tuple[int, int]] = {}
    for number, line in run.lines:
        for what in (*_pairs(line), *_over_time(line)):
            yield finding("removed", run.samples_name, number, what)
        for what in _answer(line, run):
            yield finding("range", run.samples_name, number, what)
        if line.cached_pairs is not None:
            own = line.cached_pairs, line.context_tokens
            if caches.setdefault((line.sample_id, line.query_mode), own) != own:
                told = f"has {own[0]:,} pairs of {own[1]:,} tokens, other lines of its sample have other numbers"
                yield finding("removed", run.samples_name, number, told)


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
            yield f"{name} is {removed:g}, but 1 - {kept_name} / {cached_name} is {measured:g}"
        if line.level_kind == "none" and kept < cached:
            yield f"is of the control, which keeps every pair, but {kept_name} is {kept:,} of {cached:,}"
    if line.cached_pairs and (not line.context_tokens or line.cached_pairs % line.context_tokens):
        yield f"cached_pairs is {line.cached_pairs:,}, not a multiple of context_tokens, {line.context_tokens:,}"


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
        yield "has physical_bytes, but the masked engine saves none"


def _answer(line: Line, run: Submission) -> Iterator[str]:
    """A status that is averaged has a score, any other has none; what was scored by its text has a text; levels are
    ones that can be requested."""
    answered = line.status in AVERAGED
    if answered != (line.score is not None):
        yield f"has status {line.status} and {'no score' if line.score is None else 'a score'}"
    if line.max_new_tokens is not None and line.generated_tokens > line.max_new_tokens:
        yield f"has {line.generated_tokens:,} generated tokens, of at most {line.max_new_tokens:,}"
    level, kind = line.level, line.level_kind
    if level is not None:
        fits = {"removed": 0 <= level < 1, "keep_tokens": level >= 1 and level % 1 == 0}
        if not fits.get(kind, True):
            yield f"has level {quoted(level)}, which is not valid for level_kind {kind}"
    benchmark = run.benchmark(line.benchmark)
    if answered and line.prediction is None and benchmark is not None and not benchmark.teacher_forced:
        yield "was answered and scored, but has no prediction"


def check_readable(run: Submission) -> Iterator[Finding]:
    """Where all is well formed, the readers of the leaderboard and of ``report`` find the same lines."""
    if not _sound(run) or (isinstance(run.reading, HarnessError) and completeness.missing(run)):
        return  # other checks say why
    if isinstance(run.reading, HarnessError):
        text = str(run.reading).replace(f"{run.path}{os.sep}", "")
        yield finding("not-readable", "", None, f"is refused by the readers ({printable(text, 200)})")
    elif (read := (len(run.reading.lines), len(run.reading.items))) != (len(run.lines), len(run.items)):
        told = f"is read as {read[0]:,} lines of {read[1]:,} samples, but its files have {len(run.lines):,} of "
        yield finding("not-readable", "", None, f"{told}{len(run.items):,}")


def check_scores(run: Submission) -> Iterator[Finding]:
    """Scores of the stored answers by today's scorers, where the folder holds what they read."""
    reading = _reading(run)
    if reading is None:
        return
    try:
        outcome = score_anew(reading)
    except (HarnessError, BenchmarkError) as error:
        run.notes.append(f"scores were not recomputed: {printable(error, 300)}")
        return
    numbers = {line.key: number for number, line in run.lines}
    for old, new in outcome.changed:
        told = f"score is {quoted(old.score)}, but the answer scores {quoted(new.score)}"
        if old.score == new.score:
            told = "metrics are not those of the answer"
        yield finding("score-differs", run.samples_name, numbers.get(old.key), told)


def check_summary(run: Submission) -> Iterator[Finding]:
    """``summary.json`` is what the lines give; where they give nothing, it is at least well formed."""
    reading, name = _reading(run), "summary.json"
    if reading is None:
        yield from formed(Summary, name, run.loaded[name].rows or []).findings
    elif run.loaded[name].rows:
        derived = json.loads(json.dumps(reading.summarised(reading.lines).to_json(), ensure_ascii=False))
        for what in _differences(run.value(name), derived, ""):
            yield finding("summary-differs", name, None, what)


def _sound(run: Submission) -> bool:
    """Whether figures can be recomputed from the files; other checks say where not."""
    if not run.whole or len({line.key for _, line in run.lines}) < len(run.lines):
        return False
    return all(line.sample_id in run.samples for _, line in run.lines)


def _reading(run: Submission) -> Reading | None:
    """The run as all readers see it; None where its files are not sound or :func:`check_readable` has a finding."""
    if not _sound(run) or any(check_readable(run)) or isinstance(run.reading, HarnessError):
        return None
    return run.reading


def _differences(stored: Any, derived: Any, where: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(derived, dict):
        for name in sorted(stored.keys() | derived.keys()):
            if name not in stored:
                yield f"{where}{name} is missing"
            elif name not in derived:
                yield f"{where}{quoted(name)} does not follow from the lines"
            else:
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
    if type(one) in (int, float) and type(other) in (int, float):  # True and False are not numbers
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return type(one) is type(other) and bool(one == other)
