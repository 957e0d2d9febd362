"""What lies in a run folder, before any of it is opened: names, kinds and sizes of files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.validation.findings import Finding, finding

MB = 2**20
#: files of a run and the most bytes of each
FILES = {
    "run.json": 8 * MB,
    "items.jsonl": 64 * MB,
    "samples.jsonl": 64 * MB,
    "samples.jsonl.gz": 64 * MB,
    "histograms.jsonl": 64 * MB,
    "summary.json": 64 * MB,
}
#: what every run has; :func:`harness.validation.completeness.check_complete` says more of a missing summary
NEEDED = ("run.json", "items.jsonl")
SAMPLES = ("samples.jsonl", "samples.jsonl.gz")
MASKS = "masks"
MOST_MASK = 32 * MB
MOST_MASKS = 64 * MB


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, by name. One that cannot be read: ``OSError``."""
    with os.scandir(folder) as inside:
        return sorted(inside, key=lambda entry: entry.name)


def check_tree(inside: Sequence[os.DirEntry[str]]) -> Iterator[Finding]:
    """Unknown, hidden, linked, executable, special, oversized and missing files."""
    for entry in inside:
        folder = entry.is_dir(follow_symlinks=False)
        if entry.name == MASKS and folder:
            yield from _check_masks(Path(entry.path))
        elif entry.name in FILES or entry.is_symlink():
            yield from _check_file(entry, entry.name, FILES.get(entry.name, 0))
        elif entry.name.startswith("."):
            yield finding("hidden-file", entry.name, None, "is hidden")
        else:
            kind = "folder" if folder else "file"
            yield finding("unknown-file", entry.name, None, f"is not a {kind} of a run")
    present = {entry.name for entry in inside}
    for name in (*NEEDED, *(SAMPLES[:1] if present.isdisjoint(SAMPLES) else ())):
        if name not in present:
            yield finding("missing-file", name, None, "is missing")
    if present.issuperset(SAMPLES):
        yield finding("two-samples", SAMPLES[0], None, "lies beside samples.jsonl.gz")


def _check_file(entry: os.DirEntry[str], name: str, most: int) -> Iterator[Finding]:
    about = entry.stat(follow_symlinks=False)
    if entry.is_symlink():
        yield finding("link", name, None, "is a link")
    elif not stat.S_ISREG(about.st_mode):
        yield finding("not-a-file", name, None, "is a folder" if stat.S_ISDIR(about.st_mode) else "is not a plain file")
    else:
        if about.st_mode & 0o111:
            yield finding("executable", name, None, "is executable")
        if about.st_size > most:
            yield finding("too-large", name, None, f"has {about.st_size:,} bytes, of at most {most:,}")


def _check_masks(folder: Path) -> Iterator[Finding]:
    total = 0
    for entry in entries(folder):
        name = f"{MASKS}/{entry.name}"
        if entry.name.startswith("."):
            yield finding("hidden-file", name, None, "is hidden")
        elif not entry.name.endswith(".npz") and not entry.is_symlink():
            yield finding("unknown-file", name, None, "is not an .npz file of masks")
        else:
            yield from _check_file(entry, name, MOST_MASK)
            total += entry.stat(follow_symlinks=False).st_size
    if total > MOST_MASKS:
        yield finding("too-large", MASKS, None, f"has {total:,} bytes, of at most {MOST_MASKS:,}")
