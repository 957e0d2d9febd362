"""One line for each sample x variant x rollout: none twice, none foreign, and where some lack, the run says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.results import Line, VariantFields
from harness.validation.findings import Finding, finding, shown
from harness.validation.folder import Submission

#: of a line, what its sample's item has too
SHARED = ("context_id", "benchmark", "subset", "length")
MARKS = {"removed": "", "keep_tokens": "keep=", "threshold": "tau="}


def check_items(folder: Submission) -> Iterator[Finding]:
    """No sample twice."""
    seen: set[str] = set()
    for number, row in folder.items:
        sample = row["sample_id"]
        if sample in seen:
            yield finding("doubled-line", "items.jsonl", number, f"has sample {shown(sample)} again")
        seen.add(sample)


def check_labels(folder: Submission) -> Iterator[Finding]:
    """Each variant once, and its label as its fields make it."""
    rows = (folder.run or {}).get("configuration", {}).get("variants", [])
    seen: set[str] = set()
    for row in rows:
        label = row["variant"]
        if label in seen:
            yield finding("label", "run.json", None, f"has variant {shown(label)} twice")
        seen.add(label)
        if label.split(" ")[: len(_words(row))] != _words(row):
            told = f"variant {shown(label)} has fields of {shown(' '.join(_words(row)))}"
            yield finding("label", "run.json", None, told)
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


def check_lines(folder: Submission) -> Iterator[Finding]:
    """Doubled lines, and those of no sample, variant or rollout of this run."""
    if folder.run is None:
        return
    variants, items, name = folder.variants, folder.by_sample, folder.samples_name
    seen: set[tuple[str, str, int]] = set()
    for number, line in folder.lines:
        if line.key in seen:
            told = f"is a second line of {shown(line.sample_id)}, {shown(line.variant)}, rollout {line.rollout}"
            yield finding("doubled-line", name, number, told)
        seen.add(line.key)
        for what in _foreign(line, variants, items, folder):
            yield finding("foreign-line", name, number, what)


def _foreign(
    line: Line, variants: dict[str, VariantFields], items: dict[str, dict[str, Any]], folder: Submission
) -> Iterator[str]:
    known, item = variants.get(line.variant), items.get(line.sample_id)
    if known is None:
        yield f"has variant {shown(line.variant)}, which run.json has not"
    else:
        own = line.model_dump(include=set(VariantFields.model_fields))
        wrong = [field for field, value in known.model_dump().items() if own[field] != value]
        if wrong:
            yield f"has another {', '.join(wrong)} than its variant in run.json"
    if item is None:
        yield f"has sample {shown(line.sample_id)}, which items.jsonl has not"
        return
    wrong = [field for field in SHARED if getattr(line, field) != item[field]]
    if wrong:
        yield f"has another {', '.join(wrong)} than its sample in items.jsonl"
    count = rollouts(folder, item["benchmark"])
    if count is not None and line.rollout >= count:
        yield f"has rollout {line.rollout}, of {count} in run.json"


def rollouts(folder: Submission, benchmark: str) -> int | None:
    """Answers of each variant and sample; None where samples of the benchmark have different numbers."""
    counts = ((folder.run or {}).get("answers", {}).get(benchmark) or {}).get("rollouts", [1])
    return int(counts[0]) if len(counts) == 1 else None


def expected(folder: Submission) -> int | None:
    """Lines of the whole run; None where the folder does not tell. Counted, never listed: a file may claim millions."""
    counts = [rollouts(folder, row["benchmark"]) for row in folder.by_sample.values()]
    if not counts or None in counts or not folder.variants:
        return None
    return sum(count for count in counts if count is not None) * len(folder.variants)


def check_complete(folder: Submission) -> Iterator[Finding]:
    """Missing lines of a run that says it is complete are an error, of one that does not a warning."""
    total, summary = expected(folder), folder.summary
    if total is None or summary is None or not folder.has(folder.samples_name):
        return
    variants, items = folder.variants, folder.by_sample
    there = {line.key for _, line in folder.lines if line.variant in variants and line.sample_id in items}
    lacking = total - len(there)
    if lacking > 0:
        code = "incomplete" if summary.get("complete") is False else "missing-lines"
        yield finding(code, folder.samples_name, None, f"has {len(there):,} of {total:,} lines{_first(folder, there)}")


def _first(folder: Submission, there: set[tuple[str, str, int]]) -> str:
    """The first sample and variant of which a line lacks."""
    for sample, item in folder.by_sample.items():
        count = rollouts(folder, item["benchmark"]) or 0
        for variant in folder.variants:
            if any((sample, variant, number) not in there for number in range(count)):
                return f", and lacks {shown(sample)}, {shown(variant)}"
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
