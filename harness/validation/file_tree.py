"""What lies in a run folder, before any of it is opened: names, kinds and sizes of files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harness.validation.findings import Finding, finding
from harness.validation.json_reader import MB

#: files of a run and the most bytes of each
FILES = {
    "run.json": 8 * MB,
    "items.jsonl": 64 * MB,
    "samples.jsonl": 64 * MB,
    "samples.jsonl.gz": 64 * MB,
    "histograms.jsonl": 64 * MB,
    "summary.json": 64 * MB,
}
#: what every run has; of a summary that is missing :func:`harness.validation.completeness.check_summary` says more
NEEDED = ("run.json", "items.jsonl")
SAMPLES = ("samples.jsonl", "samples.jsonl.gz")
MASKS = "masks"
MOST_MASK = 32 * MB
MOST_MASKS = 64 * MB


def check_tree(folder: Path) -> Iterator[Finding]:
    """Unknown, hidden, linked, executable, special, oversized and missing files."""
    present = set()
    for entry in _entries(folder):
        name = entry.name
        present.add(name)
        if name == MASKS and entry.is_dir(follow_symlinks=False):
            yield from _check_masks(Path(entry.path))
        elif name in FILES:
            yield from _check_file(entry, name, FILES[name])
        elif entry.is_symlink():
            yield finding("link", name, None, "is a link")
        elif name.startswith("."):
            yield finding("hidden-file", name, None, "is hidden")
        else:
            kind = "folder" if entry.is_dir(follow_symlinks=False) else "file"
            yield finding("unknown-file", name, None, f"is no {kind} of a run")
    for name in NEEDED:
        if name not in present:
            yield finding("missing-file", name, None, "is missing")
    if not present.intersection(SAMPLES):
        yield finding("missing-file", SAMPLES[0], None, "is missing")
    if present.issuperset(SAMPLES):
        yield finding("two-samples", SAMPLES[0], None, "lies beside samples.jsonl.gz")


def unopened(folder: Path) -> dict[str, Finding]:
    """Files that no check may open, with the reason."""
    found = {}
    for entry in _entries(folder):
        if entry.name in FILES:
            for one in _check_file(entry, entry.name, FILES[entry.name]):
                if one.code != "executable":
                    found[entry.name] = one
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _check_file(entry: os.DirEntry[str], name: str, most: int) -> Iterator[Finding]:
    if entry.is_symlink():
        yield finding("link", name, None, "is a link")
        return
    about = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(about.st_mode):
        what = "a folder" if stat.S_ISDIR(about.st_mode) else "no plain file"
        yield finding("not-a-file", name, None, f"is {what}")
        return
    if about.st_mode & 0o111:
        yield finding("executable", name, None, "may be executed")
    if about.st_size > most:
        yield finding("too-large", name, None, f"has {about.st_size:,} bytes, of at most {most:,}")


def _check_masks(folder: Path) -> Iterator[Finding]:
    total = 0
    for entry in _entries(folder):
        name = f"{MASKS}/{entry.name}"
        if entry.name.startswith("."):
            yield finding("hidden-file", name, None, "is hidden")
        elif not entry.name.endswith(".npz") and not entry.is_symlink():
            yield finding("unknown-file", name, None, "is no .npz file of masks")
        else:
            yield from _check_file(entry, name, MOST_MASK)
            total += entry.stat(follow_symlinks=False).st_size
    if total > MOST_MASKS:
        yield finding("too-large", MASKS, None, f"has {total:,} bytes, of at most {MOST_MASKS:,}")
