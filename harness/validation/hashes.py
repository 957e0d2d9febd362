"""Where a run says it comes from: hashes of prompts, samples, configuration and code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.base import Sample, content_hash
from harness.results.method_sources import Unknown, as_hashed_now, current_hash
from harness.results.run_folder import Line
from harness.safe_text import quoted
from harness.validation.completeness import rollouts
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

TEXTS = ("context", "question", "answer_prefix")
#: benchmarks of whose samples items.jsonl and run.json hold everything; the fields that they hold not are the defaults
WHOLE = ("needles",)


def check_prompts(folder: Submission) -> Iterator[Finding]:
    """Prompt hashes of the texts that are there; one context, one text."""
    contexts: dict[tuple[str, str], str] = {}
    for number, row in folder.items:
        if not all(name in row for name in TEXTS):
            continue
        if content_hash(*(row[name] for name in TEXTS)) != row["prompt_hash"]:
            told = f"prompt_hash of {quoted(row['sample_id'])} is not that of its texts"
            yield finding("prompt-hash", "items.jsonl", number, told)
        if contexts.setdefault((row["benchmark"], row["context_id"]), row["context"]) != row["context"]:
            told = f"context_id {quoted(row['context_id'])} has another context in a line before"
            yield finding("context-id", "items.jsonl", number, told)


def check_whole(folder: Submission) -> Iterator[Finding]:
    """Samples of benchmarks whose texts a run ships have their texts and references: they are what scores are made
    anew of, and what hashes are held against."""
    for number, row in folder.items:
        benchmark = folder.benchmark(row["benchmark"])
        if benchmark is not None and benchmark.shareable:
            lacking = [name for name in (*TEXTS, "references") if name not in row]
            if lacking:
                yield finding("missing-texts", "items.jsonl", number, f"lacks {', '.join(lacking)}")


def check_data(folder: Submission) -> Iterator[Finding]:
    """The hash of all samples, where they can be put together from what the folder holds."""
    run = folder.run
    if run is None or not folder.whole:
        return
    rows = [row for _, row in folder.items]
    if any(row["benchmark"] not in WHOLE or not all(name in row for name in TEXTS) for row in rows):
        folder.notes.append("data_hash was not checked: the folder does not hold all of its samples")
        return
    first = {line.sample_id: line for _, line in reversed(folder.lines)}
    if any(row["sample_id"] not in first for row in rows):
        folder.notes.append("data_hash was not checked: there are samples without a line")
        return
    counts = rollouts(folder)
    made = content_hash([_sample(row, first[row["sample_id"]], counts[row["sample_id"]]).to_json() for row in rows])
    if made != run["configuration"]["data_hash"]:
        yield finding("data-hash", "run.json", None, "configuration.data_hash is not that of items.jsonl")


def _sample(row: dict[str, Any], line: Line, rollouts: int) -> Sample:
    names = ("sample_id", "context_id", "subset", "length", *TEXTS)
    return Sample(
        **{name: row[name] for name in names},
        references=tuple(row.get("references", ())),
        all_classes=tuple(row.get("all_classes", ())),
        max_new_tokens=line.max_new_tokens or 0,
        sampling=line.sampling,
        rollouts=rollouts,
    )


def check_name(folder: Submission) -> Iterator[Finding]:
    """The folder's name ends in the hash of its configuration."""
    if folder.run is None or not folder.items:
        return
    configuration = folder.run["configuration"]
    model = configuration["model"].rpartition("/")[2].lower()
    kinds = "-".join(dict.fromkeys(row["benchmark"] for _, row in folder.items)).replace(":", "-")
    wanted = f"{model}-{kinds}-{content_hash(configuration)[:8]}"
    name = folder.path.resolve().name
    if name != wanted:
        told = f"the name is {quoted(name)}, run.json's configuration makes it {quoted(wanted)}"
        yield finding("folder-name", "", None, told)


def check_commit(folder: Submission) -> Iterator[Finding]:
    """Code that no commit has."""
    run = folder.run
    if run is not None and run.get("dirty"):
        told = f"was made with changes that commit {quoted(run['commit'])} has not" if run.get("commit") else ""
        yield finding("dirty", "run.json", None, told or "was made with changes that no commit has")


def check_code(folder: Submission) -> Iterator[Finding]:
    """Methods whose code is another today, and benchmarks of another version."""
    if folder.run is None:
        return
    for method, then in folder.run["method_hashes"].items():
        options = {v["options"] for v in folder.run["configuration"]["variants"] if v["method"] == method}
        try:
            now = current_hash(method, folder.run["configuration"]["model"], options)
        except Unknown as error:
            folder.notes.append(f"the code of {quoted(method)} was not checked: {error}")
            continue
        if now != as_hashed_now(method, then):
            yield finding(
                "stale", "run.json", None, f"the code of {quoted(method)} is {now} today, it was {quoted(then)}"
            )
    for name, then in folder.run["benchmark_versions"].items():
        benchmark = folder.benchmark(name)
        if benchmark is None:
            folder.notes.append(f"benchmark {quoted(name)} is not known here, so its texts and scores were not checked")
        elif benchmark.version != then:
            told = f"benchmark {quoted(name)} is version {benchmark.version} today, it was {quoted(then)}"
            yield finding("other-version", "run.json", None, told)
