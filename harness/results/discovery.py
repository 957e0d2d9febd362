"""Which folders are runs: the one rule of ``report``, ``validate`` and the leaderboard. Only names are read."""

from __future__ import annotations

import os
from pathlib import Path

#: a folder with one of these is a run, whole or damaged
MARKS = ("run.json", "samples.jsonl", "samples.jsonl.gz")


def run_folders(root: Path) -> list[Path]:
    """``root`` where it is a run, else the runs up to two folders down, sorted. Hidden folders are skipped; links
    are listed like what they lead to, and it is for the caller not to read them."""
    if is_run(root):
        return [root]
    found: list[Path] = []
    for one in subfolders(root):
        found += [one] if is_run(one) else filter(is_run, subfolders(one))
    return found


def is_run(folder: Path) -> bool:
    """Whether a folder has a file of a run; a link that leads nowhere counts."""
    return any(os.path.lexists(folder / name) for name in MARKS)


def subfolders(path: Path) -> list[Path]:
    """The folders in ``path``, sorted; none where it cannot be read."""
    try:
        with os.scandir(path) as inside:
            return sorted(Path(one.path) for one in inside if not one.name.startswith(".") and one.is_dir())
    except OSError:
        return []
