"""One line for each sample x variant x rollout: none twice, none foreign, and where some are missing, the run
says so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from harness.results import score_histograms
from harness.results.safe_text import quoted
from harness.results.schema import AVERAGED, Item, Line, VariantFields
from harness.results.score_histograms import Histogram
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

#: of a line or stored masks, what the sample's item has too
SHARED = ("context_id", "benchmark", "subset", "length")
#: of a line, what ``answers`` of run.json has of its benchmark, and the number of rollouts
ANSWERED = ("max_new_tokens", "sampling", "rollouts")
#: a share of pairs whose scores may be so near to an edge between two bins that they are counted on its other side
CLOSE = 1e-3


def check_items(run: Submission) -> Iterator[Finding]:
    """No sample twice."""
    seen: set[str] = set()
    for number, item in run.items:
        if item.sample_id in seen:
            yield finding("doubled-line", "items.jsonl", number, f"repeats sample {quoted(item.sample_id)}")
        seen.add(item.sample_id)


def check_lines(run: Submission) -> Iterator[Finding]:
    """Doubled lines, and those of no sample, variant or rollout of this run."""
    seen: set[tuple[str, str, int]] = set()
    for number, line in run.lines if run.run else ():
        if line.key in seen:
            told = f"repeats the line of {quoted(line.sample_id)}, {quoted(line.variant)}, rollout {line.rollout}"
            yield finding("doubled-line", run.samples_name, number, told)
        seen.add(line.key)
        for what in (*_unlike_variant(line, run), *_unlike_sample(line, run)):
            yield finding("foreign-line", run.samples_name, number, what)


def _unlike_variant(line: Line, run: Submission) -> Iterator[str]:
    known = run.variants.get(line.variant)
    if known is None:
        yield f"variant {quoted(line.variant)} is not in run.json"
    elif wrong := _different(line, known, VariantFields.model_fields):
        yield f"differs from its variant in run.json in {wrong}"


def _unlike_sample(line: Line, run: Submission) -> Iterator[str]:
    if run.loaded["items.jsonl"].rows is None:  # said once, not of each line
        return
    item = run.samples.get(line.sample_id)
    if item is None:
        yield f"sample {quoted(line.sample_id)} is not in items.jsonl"
        return
    yield from unlike(line, item)
    answers = answered(run, item.benchmark)
    if line.rollout >= max(answers["rollouts"]):
        yield f"has rollout {line.rollout}, of {max(answers['rollouts'])} in run.json"
    for name in ("max_new_tokens", "sampling"):
        value = getattr(line, name)
        if value not in answers[name] and not (value is None and line.status not in AVERAGED):
            yield f"{name} differs from that of {quoted(item.benchmark)} in run.json"


def unlike(one: object, item: Item) -> Iterator[str]:
    """Where a line, or what else is of a sample, differs from the sample's item."""
    if wrong := _different(one, item, SHARED):
        yield f"differs from its sample in items.jsonl in {wrong}"


def _different(one: object, other: object, names: Iterable[str]) -> str:
    return ", ".join(name for name in names if getattr(one, name) != getattr(other, name))


def answered(run: Submission, benchmark: str) -> dict[str, list[Any]]:
    """How run.json says that samples of a benchmark were answered: each value that occurs."""
    stated = run.run.answers.get(benchmark) if run.run else None
    return {name: getattr(stated, name, None) or [1 if name == "rollouts" else None] for name in ANSWERED}


def rollouts(run: Submission) -> dict[str, int]:
    """Answers per variant, by sample; where those of a benchmark have different numbers, by the sample's lines."""
    most: dict[str, int] = {}
    for _, line in run.lines:
        most[line.sample_id] = max(most.get(line.sample_id, 0), line.rollout + 1)
    found = {}
    for sample, item in run.samples.items():
        counts = answered(run, item.benchmark)["rollouts"]
        found[sample] = counts[0] if len(counts) == 1 else max(most.get(sample, 0), min(counts))
    return found


def check_complete(run: Submission) -> Iterator[Finding]:
    """Missing lines of a run that says it is complete are an error, of one that does not a warning. An interrupted run
    has no summary yet; of a complete one it was lost."""
    told, name = missing(run), "summary.json"
    if name not in run.present:
        code, what = ("unfinished", f"is missing, with {told}") if told else ("no-summary", "is missing")
        yield finding(code, name, None, what)
    elif told and run.loaded[name].rows:
        code = "incomplete" if run.value(name).get("complete") is False else "missing-lines"
        yield finding(code, run.samples_name, None, f"has {told}")


def missing(run: Submission) -> str:
    """How many lines there are of how many, and the first that is missing; empty where none is or nobody can tell.
    They are counted, never listed: a file may claim millions."""
    counts, variants = rollouts(run), run.variants
    total = sum(counts.values()) * len(variants)
    there = {line.key for _, line in run.lines if line.variant in variants and line.sample_id in run.samples}
    if len(there) >= total or run.loaded[run.samples_name].rows is None:
        return ""
    first = next(
        (f"{quoted(sample)}, {quoted(variant)}")
        for sample, count in counts.items()
        for variant in variants
        if any((sample, variant, number) not in there for number in range(count))
    )
    return f"{len(there):,} of {total:,} lines; the first missing is {first}"


def check_requested(run: Submission) -> Iterator[Finding]:
    """A variant was requested with one removed fraction, which only thresholds are chosen for."""
    requested: dict[str, float | None] = {}
    for number, line in run.lines:
        value = quoted(line.requested_removed)
        if requested.setdefault(line.variant, line.requested_removed) != line.requested_removed:
            told = f"requested_removed is {value}, other lines of its variant have another"
            yield finding("removed", run.samples_name, number, told)
        if line.requested_removed is not None and line.level_kind != "threshold":
            told = f"requested_removed is {value}, but level_kind is {line.level_kind}"
            yield finding("removed", run.samples_name, number, told)


def check_histograms(run: Submission) -> Iterator[Finding]:
    """One per sample and score, of pairs that the sample has, and in line with what thresholds removed."""
    variants = {_scores(variant) for variant in run.variants.values()}
    lines: dict[tuple[Any, ...], list[Line]] = {}
    pairs: dict[str, set[int]] = {}
    for _, line in run.lines:
        lines.setdefault((line.sample_id, *_scores(line)), []).append(line)
        if line.cached_pairs is not None:
            pairs.setdefault(line.sample_id, set()).add(line.cached_pairs)
    seen: set[tuple[Any, ...]] = set()
    for number, row in run.histograms.rows:
        key = (row.sample_id, *_scores(row))
        if key in seen:
            told = f"repeats the scores of {quoted(row.sample_id)} and {quoted(row.method)}"
            yield finding("doubled-line", "histograms.jsonl", number, told)
        seen.add(key)
        if run.samples and row.sample_id not in run.samples:
            yield finding("foreign-line", "histograms.jsonl", number, "its sample is not in items.jsonl")
        elif variants and _scores(row) not in variants:
            yield finding("foreign-line", "histograms.jsonl", number, "no variant in run.json has these scores")
        elif row.cached not in pairs.get(row.sample_id, {row.cached}):
            told = f"cached is {row.cached:,}, which differs from its sample's lines"
            yield finding("removed", "histograms.jsonl", number, told)
        elif wrong := next((line for line in lines.get(key, ()) if not _allowed(row, line)), None):
            told = f"does not allow what {quoted(wrong.variant)} removed of it, {wrong.removed_context}"
            yield finding("removed", "histograms.jsonl", number, told)


def _scores(one: VariantFields | Histogram) -> tuple[str, str, int, int | str]:
    return one.method, one.options, one.window, one.sinks


def _allowed(row: Histogram, line: Line) -> bool:
    """Whether a threshold removed of a context what its scores allow; of other lines nothing is known."""
    first = line.query_mode == "agnostic" and line.phase == "prefill"
    if not first or line.level_kind != "threshold" or line.level is None or line.removed_context is None:
        return True
    if not math.isfinite(line.level):
        return True
    told = score_histograms.told(row, line.level)
    return told.least - CLOSE <= line.removed_context <= told.most + CLOSE
