"""Stored masks of a submission: of samples and variants that the run has, keeping what the run's lines say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessError
from harness.results.mask_file import StoredMasks, file_name, read
from harness.results.safe_text import printable, quoted
from harness.results.schema import AVERAGED, Line
from harness.validation.completeness import unlike
from harness.validation.file_tree import MASKS
from harness.validation.findings import Finding, finding
from harness.validation.privacy import of_value
from harness.validation.submission import Submission


def check_masks(run: Submission) -> Iterator[Finding]:
    """Each file is one that the leaderboard reads, of a sample of this run; other checks cover links and sizes."""
    lines: dict[tuple[str, str], Line] = {}
    for _, line in run.lines:
        lines.setdefault((line.sample_id, line.variant), line)
    for file in _files(run):
        name = f"{MASKS}/{file.name}"
        try:
            stored = read(file)
        except HarnessError as error:
            told = printable(str(error).partition(" cannot be read as ")[2], 200)
            yield finding("masks", name, None, f"cannot be read as {told}")
            continue
        for what in (*_foreign(stored, file.name, run), *_other_pairs(stored, lines)):
            yield finding("masks", name, None, what)
        yield from _texts(stored, name, run)


def check_all_there(run: Submission) -> Iterator[Finding]:
    """The masks that run.json says were requested; none of a sample that could not be run."""
    requested = run.run.store_masks if run.run else 0
    ran = {line.sample_id for _, line in run.lines if line.status in AVERAGED}
    seen: Counter[tuple[object, ...]] = Counter()
    stored: dict[str, bool] = {}
    for _, item in run.items:
        group = (item.benchmark, item.subset, item.length)
        seen[group] += 1
        if seen[group] <= requested and item.sample_id in ran:
            stored[item.sample_id] = (run.path / MASKS / file_name(item.sample_id)).is_file()
    missing = [sample for sample, there in stored.items() if not there]
    if missing:
        told = f"lacks {len(missing):,} of {len(stored):,} requested samples, first {quoted(missing[0])}"
        yield finding("missing-masks", MASKS, None, told)


def _files(run: Submission) -> Iterator[Path]:
    """Those that may be opened; none where together they are too large."""
    if MASKS in run.present - run.refused:
        for file in sorted((run.path / MASKS).glob("*.npz")):
            if f"{MASKS}/{file.name}" not in run.refused:
                yield file


def _foreign(stored: StoredMasks, name: str, run: Submission) -> Iterator[str]:
    about, item = stored.about, run.samples.get(stored.sample_id)
    if item is not None:
        yield from unlike(about, item)
    elif run.loaded["items.jsonl"].rows is not None:
        yield f"sample {quoted(about.sample_id)} is not in items.jsonl"
        return
    if name != file_name(about.sample_id):
        yield f"the masks of {quoted(about.sample_id)} must be named {file_name(about.sample_id)}"
    unknown = [label for label in about.variants if run.variants and label not in run.variants]
    if unknown:
        yield f"variant {quoted(unknown[0])} is not in run.json"


def _other_pairs(stored: StoredMasks, lines: dict[tuple[str, str], Line]) -> Iterator[str]:
    """A mask keeps as many pairs of as many as its line says."""
    layers, heads, tokens = stored.shape
    pairs = layers * heads * tokens
    for variant in stored.variants:
        line = lines.get((stored.sample_id, variant))
        if line is None or line.kept_pairs is None:
            continue
        kept = stored.kept_pairs(variant)
        if (kept, pairs) != (line.kept_pairs, line.cached_pairs):
            own = f"keeps {kept:,} of {pairs:,} pairs for {quoted(variant)}"
            yield f"{own}, its line says {line.kept_pairs:,} of {line.cached_pairs:,}"


def _texts(stored: StoredMasks, name: str, run: Submission) -> Iterator[Finding]:
    """Tokens have their texts only where a run may redistribute them, and are the context that items.jsonl has."""
    item = run.samples.get(stored.sample_id)
    yield from of_value(name, None, {"variants": list(stored.variants), "sample_id": stored.sample_id})
    if stored.tokens is None or item is None:
        return
    text = "".join(stored.tokens)
    yield from of_value(name, None, {"tokens": text})
    benchmark = run.benchmark(item.benchmark)
    if benchmark is None or not benchmark.shareable:
        yield finding("not-shareable", name, None, f"has the texts of {quoted(item.benchmark)}")
    elif not stored.about.cut and item.context.strip() not in text:
        yield finding("masks", name, None, "its tokens are not the context in items.jsonl")
