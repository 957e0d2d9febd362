"""Where results are to go: whether a folder or a file can be written, before anything is computed for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from harness.errors import HarnessError


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
        raise HarnessError(
            f"{flag} {path} cannot be written ({error}); give a file in a folder that is there"
        ) from error
    if not able:
        raise HarnessError(f"{flag} {path} cannot be written; give a file in a folder that is there")


def write(result: dict[str, Any], path: Path) -> None:
    """Write figures as JSON."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
