"""What pages have worked out, as JSON in the user's cache folder, cleaned of what may not be shown.

Not joblib's cache or Streamlit's: an entry follows the files of a run and the code of several packages, boards are made
ahead without Streamlit, and to read what is kept never runs code.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import harness.analysis
import harness.results
from harness import files
from harness.results.safe_text import clean

Json = dict[str, Any]
#: what nobody has asked for in so many days is removed
KEPT_DAYS = 30
_DAY = 86_400.0


def cached(kind: str, stamp: Iterable[Any], make: Callable[[], Json]) -> Json:
    """``make()``, or what it gave before for the same stamp and code. A cache that cannot be read or written costs time
    only."""
    file = cache_folder() / f"{kind}-{digest(json.dumps([_code(), *stamp]))[:32]}.json"
    try:
        found = dict(json.loads(file.read_text(encoding="utf-8")))
        if time.time() - file.stat().st_mtime > _DAY:
            file.touch()  # see `trim`
        return found
    except (OSError, ValueError):
        pass
    made = clean(json.loads(json.dumps(make(), default=str)))
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(file, json.dumps(made))
    return dict(made)


def trim() -> None:
    """Removes what was last asked for :data:`KEPT_DAYS` ago: of runs that have changed, or are gone."""
    for file in cache_folder().glob("*.json"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > KEPT_DAYS * _DAY:
                file.unlink()


def cache_folder() -> Path:
    return files.cache_folder() / "board"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Another where the code that makes what is kept is another, so that older entries are made again."""
    folders = [Path(__file__).parent, *map(Path, (*harness.analysis.__path__, *harness.results.__path__))]
    sources = sorted(file for folder in folders for file in folder.glob("*.py"))
    return digest("".join(file.read_text(encoding="utf-8") for file in sources))
