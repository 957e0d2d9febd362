"""Files outside of any room: the cache folder, JSON read, files written whole or not at all, and whether a place can be
written to before anything is computed for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from harness.errors import HarnessError


def cache_folder() -> Path:
    """Where models, generated samples and locks are kept: ``$XDG_CACHE_HOME/kvprune``, by default ``~/.cache/kvprune``
    on Linux and the system's own place elsewhere."""
    return platformdirs.user_cache_path("kvprune")


def load(path: Path) -> Any:
    """The JSON value of a file. ``ValueError`` also where it is nested too deep to be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft beside ``path``, which takes its place when the block ends and is removed where the block fails: other
    processes see the whole file or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a whole text file or nothing."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write(result: Any, path: Path) -> None:
    """Write figures as JSON, the whole file or nothing."""
    write_atomically(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def check_folder(folder: Path, flag: str = "--out") -> None:
    """:class:`HarnessError` unless a folder can be written to, or made: its nearest parent that is there decides."""
    try:
        folder.exists()
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise HarnessError(f"{flag} {folder} cannot be used: {error}") from error
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise HarnessError(f"{flag} {folder} cannot be used: {there} is not a folder that can be written to")


def check_file(path: Path | None, flag: str = "--json") -> None:
    """:class:`HarnessError` unless a file can be written: figures that took minutes must not be lost for a mistyped
    folder."""
    if path is None:
        return
    try:
        folder = path.absolute().parent
        able = not path.is_dir() and folder.is_dir() and os.access(folder, os.W_OK)
        able = able and (not path.exists() or os.access(path, os.W_OK))
    except (OSError, ValueError) as error:
        raise HarnessError(f"{flag} {path} cannot be written ({error}); give a file in an existing folder") from error
    if not able:
        raise HarnessError(f"{flag} {path} cannot be written; give a file in an existing folder")
