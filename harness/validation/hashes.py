"""Where a run says it comes from: hashes of prompts, samples, configuration and code."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.base import Sample, content_hash
from harness.results.method_sources import Unknown, as_hashed_now, current_hash
from harness.results.safe_text import quoted
from harness.results.schema import Item, Line
from harness.validation.completeness import rollouts
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

TEXTS = ("context", "question", "answer_prefix")
#: benchmarks whose samples are wholly in items.jsonl and run.json; fields that are not are the defaults
WHOLE = ("needles",)


def check_texts(run: Submission) -> Iterator[Finding]:
    """Items of benchmarks whose texts a run ships have them, with their references: they are what scores are
    recomputed from. Prompt hashes are of these texts; one context has one text."""
    contexts: dict[tuple[str, str], str] = {}
    for number, item in run.items:
        benchmark = run.benchmark(item.benchmark)
        missing = [name for name in (*TEXTS, "references") if not item.holds(name)]
        if missing and benchmark is not None and benchmark.shareable:
            yield finding("missing-texts", "items.jsonl", number, f"lacks {', '.join(missing)}")
        if not item.holds(*TEXTS):
            continue
        if content_hash(*(getattr(item, name) for name in TEXTS)) != item.prompt_hash:
            told = f"prompt_hash of {quoted(item.sample_id)} is not that of its texts"
            yield finding("prompt-hash", "items.jsonl", number, told)
        if contexts.setdefault((item.benchmark, item.context_id), item.context) != item.context:
            told = f"context_id {quoted(item.context_id)} has another context in an earlier line"
            yield finding("context-id", "items.jsonl", number, told)


def check_data(run: Submission) -> Iterator[Finding]:
    """The hash of all samples, where the folder holds them."""
    if run.run is None or not run.whole:
        return
    items = [item for _, item in run.items]
    if any(item.benchmark not in WHOLE or not item.holds(*TEXTS) for item in items):
        run.notes.append("data_hash was not checked: the folder does not hold all of its samples")
        return
    first = {line.sample_id: line for _, line in reversed(run.lines)}
    if any(item.sample_id not in first for item in items):
        run.notes.append("data_hash was not checked: some samples have no line")
        return
    counts = rollouts(run)
    samples = [_sample(item, first[item.sample_id], counts[item.sample_id]).to_json() for item in items]
    if content_hash(samples) != run.run.configuration.data_hash:
        yield finding("data-hash", "run.json", None, "configuration.data_hash is not that of items.jsonl")


def _sample(item: Item, line: Line, rollouts: int) -> Sample:
    return Sample(
        **{name: getattr(item, name) for name in ("sample_id", "context_id", "subset", "length", *TEXTS)},
        references=tuple(item.references),
        all_classes=tuple(item.all_classes),
        max_new_tokens=line.max_new_tokens or 0,
        sampling=line.sampling,
        rollouts=rollouts,
    )


def check_name(run: Submission) -> Iterator[Finding]:
    """The folder's name ends in the hash of its configuration."""
    if run.run is None or not run.items:
        return
    configuration = run.value("run.json")["configuration"]
    model = configuration["model"].rpartition("/")[2].lower()
    kinds = "-".join(dict.fromkeys(item.benchmark for _, item in run.items)).replace(":", "-")
    wanted = f"{model}-{kinds}-{content_hash(configuration)[:8]}"
    name = run.path.resolve().name
    if name != wanted:
        told = f"its name is {quoted(name)}, but the configuration in run.json makes it {quoted(wanted)}"
        yield finding("folder-name", "", None, told)


def check_commit(run: Submission) -> Iterator[Finding]:
    """Code that no commit has."""
    if run.run is not None and run.run.dirty:
        told = f"that are not in commit {quoted(run.run.commit)}" if run.run.commit else "that are in no commit"
        yield finding("dirty", "run.json", None, f"was made with changes {told}")


def check_code(run: Submission) -> Iterator[Finding]:
    """Methods whose code differs today, and benchmarks of another version."""
    if run.run is None:
        return
    configuration = run.run.configuration
    for method, then in run.run.method_hashes.items():
        options = {variant.options for variant in configuration.variants if variant.method == method}
        try:
            now = current_hash(method, configuration.model, options)
        except Unknown as error:
            run.notes.append(f"the code of {quoted(method)} was not checked: {error}")
            continue
        if now != as_hashed_now(method, then):
            told = f"the code of {quoted(method)} is {now} today, it was {quoted(then)}"
            yield finding("stale", "run.json", None, told)
    for name, version in run.run.benchmark_versions.items():
        benchmark = run.benchmark(name)
        if benchmark is None:
            run.notes.append(f"benchmark {quoted(name)} is not known here, so its texts and scores were not checked")
        elif benchmark.version != version:
            told = f"benchmark {quoted(name)} is version {benchmark.version} today, it was {quoted(version)}"
            yield finding("other-version", "run.json", None, told)
