"""One line for each sample x variant x rollout: none twice, none foreign, and where some lack, the run says so."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any

from harness.analysis.summary import facts_of
from harness.results import score_histograms
from harness.results.run_folder import AVERAGED, Line, VariantFields
from harness.results.score_histograms import Histogram
from harness.safe_text import quoted
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

#: of a line or stored masks, what the sample's item has too
SHARED = ("context_id", "benchmark", "subset", "length")
#: of a line, what ``answers`` of run.json has of its benchmark, beside the number of rollouts
ANSWERED = ("max_new_tokens", "sampling", "rollouts")
#: a share of pairs whose scores may be so near to an edge between two bins that they are counted on its other side
CLOSE = 1e-3
MARKS = {"removed": "", "keep_tokens": "keep=", "threshold": "tau="}


def check_items(folder: Submission) -> Iterator[Finding]:
    """No sample twice."""
    seen: set[str] = set()
    for number, row in folder.items:
        sample = row["sample_id"]
        if sample in seen:
            yield finding("doubled-line", "items.jsonl", number, f"has sample {quoted(sample)} again")
        seen.add(sample)


def check_labels(folder: Submission) -> Iterator[Finding]:
    """Each variant once, and its label as its fields make it."""
    rows = (folder.run or {}).get("configuration", {}).get("variants", [])
    seen: set[str] = set()
    for row in rows:
        label = row["variant"]
        if label in seen:
            yield finding("label", "run.json", None, f"has variant {quoted(label)} twice")
        seen.add(label)
        if label.split(" ")[: len(_words(row))] != _words(row):
            told = f"variant {quoted(label)} has fields of {quoted(' '.join(_words(row)))}"
            yield finding("label", "run.json", None, told)
        elif rest := _untold(row):
            yield finding("label", "run.json", None, f"variant {quoted(label)} says {quoted(rest)}, its fields do not")
    controls = sum(row["level_kind"] == "none" for row in rows)
    if rows and controls != 1:
        yield finding("label", "run.json", None, f"has {controls} controls (level_kind none), of exactly 1")


def _words(row: dict[str, Any]) -> list[str]:
    """How the label of these fields begins."""
    if row["level_kind"] == "none":
        return [str(row["method"])]
    level = row["level"]
    level = repr(float(level)).removesuffix(".0") if level is not None else "None"
    return [row["method"], row["budget"], MARKS[row["level_kind"]] + level]


def _untold(row: dict[str, Any]) -> str:
    """What the label says behind its first words that is none of its fields, in their order, or no mode that it has."""
    rest = "".join(f" {word}" for word in row["variant"].split(" ")[len(_words(row)) :])
    try:
        options = json.loads(row["options"])
    except (ValueError, RecursionError):
        options = None
    may = [] if row["level_kind"] == "none" else [f"window={row['window']}", f"sinks={row['sinks']}"]
    may += [f"{name}={value}" for name, value in options.items()] if isinstance(options, dict) else []
    must = [] if row["query_mode"] == "agnostic" else [row["query_mode"]]
    must += ["thinking"] if row["thinking"] else []
    for word in (*may, *must):
        told = rest == f" {word}" or rest.startswith(f" {word} ")
        if not told and word in must:
            return rest.strip() or f"not {word}"
        rest = rest[len(word) + 1 :] if told else rest
    return rest.strip()


def check_lines(folder: Submission) -> Iterator[Finding]:
    """Doubled lines, and those of no sample, variant or rollout of this run."""
    if folder.run is None:
        return
    variants, name = folder.variants, folder.samples_name
    items = folder.by_sample if folder.loaded["items.jsonl"].value is not None else None  # said once, not of each line
    seen: set[tuple[str, str, int]] = set()
    for number, line in folder.lines:
        if line.key in seen:
            told = f"is a second line of {quoted(line.sample_id)}, {quoted(line.variant)}, rollout {line.rollout}"
            yield finding("doubled-line", name, number, told)
        seen.add(line.key)
        for what in _foreign(line, variants, items, folder):
            yield finding("foreign-line", name, number, what)


def _foreign(
    line: Line, variants: dict[str, VariantFields], items: dict[str, dict[str, Any]] | None, folder: Submission
) -> Iterator[str]:
    known = variants.get(line.variant)
    if known is None:
        yield f"has variant {quoted(line.variant)}, which run.json has not"
    else:
        own = line.model_dump(include=set(VariantFields.model_fields))
        wrong = [field for field, value in known.model_dump().items() if own[field] != value]
        if wrong:
            yield f"has another {', '.join(wrong)} than its variant in run.json"
    if items is None:
        return
    item = items.get(line.sample_id)
    if item is None:
        yield f"has sample {quoted(line.sample_id)}, which items.jsonl has not"
        return
    yield from unlike(line, item)
    answers = answered(folder, item["benchmark"])
    if line.rollout >= max(answers["rollouts"]):
        yield f"has rollout {line.rollout}, of {max(answers['rollouts'])} in run.json"
    for name in ("max_new_tokens", "sampling"):
        value = getattr(line, name)
        if value not in answers[name] and not (value is None and line.status not in AVERAGED):
            yield f"has another {name} than run.json has for {quoted(item['benchmark'])}"


def unlike(one: object, item: dict[str, Any]) -> Iterator[str]:
    """Where a line, or what else is of a sample, says otherwise than the sample's item."""
    wrong = [field for field in SHARED if getattr(one, field) != item[field]]
    if wrong:
        yield f"has another {', '.join(wrong)} than its sample in items.jsonl"


def answered(folder: Submission, benchmark: str) -> dict[str, list[Any]]:
    """How run.json says that samples of a benchmark were answered: each value that occurs."""
    told = (folder.run or {}).get("answers", {}).get(benchmark) or {}
    return {name: told.get(name) or [1 if name == "rollouts" else None] for name in ANSWERED}


def rollouts(folder: Submission) -> dict[str, int]:
    """Answers of each variant, by sample; where those of a benchmark have different numbers, by the sample's lines."""
    most: dict[str, int] = {}
    for _, line in folder.lines:
        most[line.sample_id] = max(most.get(line.sample_id, 0), line.rollout + 1)
    found = {}
    for sample, item in folder.by_sample.items():
        counts = answered(folder, item["benchmark"])["rollouts"]
        found[sample] = counts[0] if len(counts) == 1 else max(most.get(sample, 0), min(counts))
    return found


def expected(folder: Submission) -> int | None:
    """Lines of the whole run; None where the folder does not tell. Counted, never listed: a file may claim millions."""
    counts = rollouts(folder)
    return sum(counts.values()) * len(folder.variants) if counts and folder.variants else None


def check_complete(folder: Submission) -> Iterator[Finding]:
    """Missing lines of a run that says it is complete are an error, of one that does not a warning."""
    summary = folder.summary
    if summary is not None and (told := lacking(folder)):
        code = "incomplete" if summary.get("complete") is False else "missing-lines"
        yield finding(code, folder.samples_name, None, f"has {told}")


def check_summary(folder: Submission) -> Iterator[Finding]:
    """An interrupted run has no summary yet; of a whole one it was lost."""
    name = "summary.json"
    if not os.path.lexists(folder.path / name):
        if told := lacking(folder):
            yield finding("unfinished", name, None, f"is missing, with {told}")
        else:
            yield finding("no-summary", name, None, "is missing")


def lacking(folder: Submission) -> str:
    """How many lines there are of how many, and the first that lacks; empty where none does or nobody can tell."""
    total = expected(folder)
    if total is None or folder.loaded[folder.samples_name].value is None:
        return ""
    variants, items = folder.variants, folder.by_sample
    there = {line.key for _, line in folder.lines if line.variant in variants and line.sample_id in items}
    return f"{len(there):,} of {total:,} lines{_first(folder, there)}" if len(there) < total else ""


def _first(folder: Submission, there: set[tuple[str, str, int]]) -> str:
    """The first sample and variant of which a line lacks."""
    for sample, count in rollouts(folder).items():
        for variant in folder.variants:
            if any((sample, variant, number) not in there for number in range(count)):
                return f", and lacks {quoted(sample)}, {quoted(variant)}"
    return ""


def check_record(folder: Submission) -> Iterator[Finding]:
    """``run.json`` tells of the samples and methods that the other files have, and of nothing else."""
    run = folder.run
    if run is None or not folder.items or len(folder.items) < len(folder.loaded["items.jsonl"].rows):
        return
    configuration, rows = run["configuration"], [row for _, row in folder.items]
    told = {
        "configuration.benchmarks": (configuration["benchmarks"], sorted({row["benchmark"] for row in rows})),
        "configuration.lengths": (configuration["lengths"], list(dict.fromkeys(row["length"] for row in rows))),
        "configuration.subsets": (configuration["subsets"], list(dict.fromkeys(row["subset"] for row in rows))),
        "configuration.limits": (sorted(configuration["limits"]), sorted({row["benchmark"] for row in rows})),
        "configuration.seed": (configuration["seed"], run["seeds"]["run"]),
        "method_hashes": (sorted(run["method_hashes"]), sorted({v["method"] for v in configuration["variants"]})),
        **{
            name: (sorted(run[name]), sorted({row["benchmark"] for row in rows}))
            for name in ("answers", "facts", "benchmark_versions")
        },
    }
    for name, (said, found) in told.items():
        if said != found:
            yield finding("record", "run.json", None, f"{name} is not what the rest of the run has")
    for name, said in run["answers"].items():
        yield from _values_told(folder, name, said)
    for name, said in run["facts"].items():
        benchmark = folder.benchmark(name)
        if benchmark is not None and benchmark.version == run["benchmark_versions"].get(name):
            today = json.loads(json.dumps(facts_of(benchmark)._asdict()))
            wrong = [field for field, value in today.items() if value != said.get(field)]
            if wrong:
                told_of = f"facts of {quoted(name)} has another {', '.join(wrong)} than the benchmark"
                yield finding("record", "run.json", None, told_of)


def _values_told(folder: Submission, benchmark: str, said: dict[str, Any]) -> Iterator[Finding]:
    """Each value of ``answers`` is one that lines have; a run that is not complete may have none of it yet."""
    own = [line for _, line in folder.lines if line.benchmark == benchmark and line.status in AVERAGED]
    if (folder.summary or {}).get("complete") is not True or not own:
        return
    counts = rollouts(folder)
    found: dict[str, list[Any]] = {
        "max_new_tokens": [line.max_new_tokens for line in own],
        "sampling": [line.sampling for line in own],
        "rollouts": [counts.get(line.sample_id) for line in own],
    }
    for name, values in found.items():
        if any(value not in values for value in said[name]):
            yield finding("record", "run.json", None, f"answers of {quoted(benchmark)} has a {name} that no line has")


def check_requested(folder: Submission) -> Iterator[Finding]:
    """A variant was asked for one removed fraction, which only thresholds are chosen for."""
    asked: dict[str, float | None] = {}
    for number, line in folder.lines:
        if asked.setdefault(line.variant, line.requested_removed) != line.requested_removed:
            told = f"requested_removed is {quoted(line.requested_removed)}, another line of its variant has another"
            yield finding("removed", folder.samples_name, number, told)
        if line.requested_removed is not None and line.level_kind != "threshold":
            told = f"has requested_removed, and level_kind {line.level_kind}"
            yield finding("removed", folder.samples_name, number, told)


def check_histograms(folder: Submission) -> Iterator[Finding]:
    """Of each sample and score one, of pairs that the sample has, and in line with what thresholds removed."""
    file = "histograms.jsonl"
    own = {name: (v.method, v.options, v.window, v.sinks) for name, v in folder.variants.items()}
    lines: dict[tuple[Any, ...], list[Line]] = {}
    pairs: dict[str, set[int]] = {}
    for _, line in folder.lines:
        key = (line.sample_id, line.method, line.options, line.window, line.sinks)
        lines.setdefault(key, []).append(line)
        if line.cached_pairs is not None:
            pairs.setdefault(line.sample_id, set()).add(line.cached_pairs)
    seen: set[tuple[Any, ...]] = set()
    for number, row in folder.histograms.rows:
        key = (row.sample_id, row.method, row.options, row.window, row.sinks)
        if key in seen:
            yield finding("doubled-line", file, number, f"is of {quoted(row.sample_id)} and {quoted(row.method)} again")
        seen.add(key)
        if folder.by_sample and row.sample_id not in folder.by_sample:
            yield finding("foreign-line", file, number, "is of a sample that items.jsonl has not")
        elif own and key[1:] not in own.values():
            yield finding("foreign-line", file, number, "is of scores that no variant in run.json has")
        elif row.cached not in pairs.get(row.sample_id, {row.cached}):
            yield finding("removed", file, number, f"cached is {row.cached:,}, its sample's lines have other pairs")
        else:
            for line in lines.get(key, ()):
                if not _told_by(row, line):
                    told = f"does not allow what {quoted(line.variant)} removed of it, {line.removed_context}"
                    yield finding("removed", file, number, told)
                    break


def _told_by(row: Histogram, line: Line) -> bool:
    """Whether what a threshold removed of a context is what its scores let it; of other lines nothing is known."""
    first = line.query_mode == "agnostic" and line.phase == "prefill"
    if not first or line.level_kind != "threshold" or line.level is None or line.removed_context is None:
        return True
    if not math.isfinite(line.level):
        return True
    told = score_histograms.told(row, line.level)
    return told.least - CLOSE <= line.removed_context <= told.most + CLOSE
