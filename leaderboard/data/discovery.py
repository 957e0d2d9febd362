"""The runs under some results folders, and the stamp by which a change of their files shows. Links are not followed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.results.discovery import run_folders

FILES = ("run.json", "items.jsonl", "samples.jsonl", "samples.jsonl.gz", "histograms.jsonl", "summary.json", "masks")

Stamp = tuple[tuple[str, int, int], ...]


def stamps(paths: Sequence[Path]) -> str:
    """Changes when any run under ``paths`` does."""
    digest = hashlib.sha256()
    for _, folder in all_runs(paths):
        digest.update(repr(stamp_of(folder)).encode())
    return digest.hexdigest()


def all_runs(paths: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """``(root, run folder)``, each run once, though it is given twice or beside the folder that it is in."""
    seen: set[Path] = set()
    for root in (path.resolve() for path in paths):
        for folder in run_folders(root):
            if folder not in seen:
                seen.add(folder)
                yield root, folder


def linked(folder: Path, root: Path) -> str:
    """Why a folder is not read: it, or a file in it, is a link to somewhere else; empty where none is."""
    if folder != root and any(one.is_symlink() for one in (folder, folder.parent) if one != root):
        return "is a link; the board reads nothing outside its results folder"
    for name in FILES:
        if os.path.islink(folder / name) and not Path(os.path.realpath(folder / name)).is_relative_to(folder):
            return f"{name} is a link that leads out of the folder; put the file itself there"
    return ""


def stamp_of(folder: Path) -> Stamp:
    found = []
    for name in FILES:
        try:
            stat = os.stat(os.path.join(folder, name))
        except OSError:
            continue
        found.append((name, stat.st_size, stat.st_mtime_ns))
    return (str(folder), 0, 0), *found
