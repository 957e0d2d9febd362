"""Stored masks of a submission: of samples and variants that the run has, keeping what the run's lines say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessError
from harness.results.mask_file import StoredMasks, file_name
from harness.results.mask_reading import read
from harness.results.run_folder import AVERAGED, Line
from harness.safe_text import printable, quoted
from harness.validation.completeness import unlike
from harness.validation.file_tree import MASKS, MOST_MASK, MOST_MASKS
from harness.validation.findings import Finding, finding
from harness.validation.privacy import of_value
from harness.validation.submission import Submission


def check_masks(folder: Submission) -> Iterator[Finding]:
    """Each file is one that the board reads, of a sample of this run; other checks tell of links and sizes."""
    lines: dict[tuple[str, str], Line] = {}
    for _, line in folder.lines:
        lines.setdefault((line.sample_id, line.variant), line)
    for file in _files(folder.path / MASKS):
        name = f"{MASKS}/{file.name}"
        try:
            stored = read(file)
        except HarnessError as error:
            told = printable(str(error).partition(" cannot be read as ")[2], 200)
            yield finding("masks", name, None, f"cannot be read as {told}")
            continue
        for what in _foreign(stored, file.name, folder):
            yield finding("masks", name, None, what)
        for what in _other_pairs(stored, lines):
            yield finding("masks", name, None, what)
        yield from _texts(stored, name, folder)


def check_all_there(folder: Submission) -> Iterator[Finding]:
    """The masks that run.json says were asked for; none of a sample that could not be run."""
    asked = (folder.run or {}).get("store_masks", 0)
    ran = {line.sample_id for _, line in folder.lines if line.status in AVERAGED}
    seen: Counter[tuple[object, ...]] = Counter()
    missing: list[str] = []
    wanted = 0
    for _, item in folder.items:
        group = (item["benchmark"], item["subset"], item["length"])
        seen[group] += 1
        if seen[group] <= asked and item["sample_id"] in ran:
            wanted += 1
            if not (folder.path / MASKS / file_name(item["sample_id"])).is_file():
                missing.append(item["sample_id"])
    if missing:
        told = f"lacks {len(missing):,} of {wanted:,} samples' masks that were asked for, {quoted(missing[0])} first"
        yield finding("missing-masks", MASKS, None, told)


def _files(masks: Path) -> Iterator[Path]:
    """Those that may be opened, up to the size that all of them may have."""
    total = 0
    if masks.is_symlink() or not masks.is_dir():
        return
    for file in sorted(masks.glob("*.npz")):
        if file.is_symlink() or not file.is_file():
            continue
        size = file.stat().st_size
        total += size
        if total > MOST_MASKS:
            return
        if size <= MOST_MASK:
            yield file


def _foreign(stored: StoredMasks, name: str, folder: Submission) -> Iterator[str]:
    about, item = stored.about, folder.by_sample.get(stored.sample_id)
    if item is not None:
        yield from unlike(about, item)
    elif folder.loaded["items.jsonl"].value is not None:
        yield f"is of sample {quoted(about.sample_id)}, which items.jsonl has not"
        return
    if name != file_name(about.sample_id):
        yield f"is named otherwise than the masks of {quoted(about.sample_id)}, {file_name(about.sample_id)}"
    unknown = [label for label in about.variants if folder.variants and label not in folder.variants]
    if unknown:
        yield f"has variant {quoted(unknown[0])}, which run.json has not"


def _other_pairs(stored: StoredMasks, lines: dict[tuple[str, str], Line]) -> Iterator[str]:
    """A mask keeps as many pairs of as many as its line says."""
    layers, heads, cached = stored.shape
    for variant in stored.variants:
        line = lines.get((stored.sample_id, variant))
        if line is None or line.kept_pairs is None:
            continue
        kept = stored.kept_pairs(variant)
        if (kept, layers * heads * cached) != (line.kept_pairs, line.cached_pairs):
            yield (
                f"keeps {kept:,} of {layers * heads * cached:,} pairs for {quoted(variant)}, its line says "
                f"{line.kept_pairs:,} of {line.cached_pairs:,}"
            )


def _texts(stored: StoredMasks, name: str, folder: Submission) -> Iterator[Finding]:
    """Tokens have their texts where a run may ship them alone, and are the context that items.jsonl has."""
    item = folder.by_sample.get(stored.sample_id)
    yield from of_value(name, None, {"variants": list(stored.variants), "sample_id": stored.sample_id})
    if stored.tokens is None or item is None:
        return
    text = "".join(stored.tokens)
    yield from of_value(name, None, {"tokens": text})
    benchmark = folder.benchmark(item["benchmark"])
    if benchmark is None or not benchmark.shareable:
        yield finding("not-shareable", name, None, f"has the texts of {quoted(item['benchmark'])}")
    elif not stored.about.cut and item.get("context", "").strip() not in text:
        yield finding("masks", name, None, "has the tokens of another context than items.jsonl")
