"""What pages have worked out, as JSON in the user's cache folder, cleaned of what may not be shown."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.safe_text import clean

#: raised whenever what is kept of a run changes, so that older entries are made anew
EDITION = 7


#: what nobody has asked for in so many days is removed
KEPT_DAYS = 30
_DAY = 86_400.0


def cached(kind: str, stamp: Iterable[Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``make()``, or what it gave before for the same stamp. A cache that cannot be read or written costs time only."""
    file = cache_folder() / f"{kind}-{digest(json.dumps([EDITION, *stamp]))[:32]}.json"
    try:
        found = dict(json.loads(file.read_text(encoding="utf-8")))
        if time.time() - file.stat().st_mtime > _DAY:
            file.touch()  # see `trim`
        return found
    except (OSError, ValueError):
        pass
    made = clean(json.loads(json.dumps(make(), default=str)))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as out:
            json.dump(made, out)
        os.replace(out.name, file)
    except OSError:
        pass
    return dict(made)


def trim() -> None:
    """Removes what was last asked for :data:`KEPT_DAYS` ago: of runs that have changed, or are gone."""
    for file in cache_folder().glob("*.json"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > KEPT_DAYS * _DAY:
                file.unlink()


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvprune" / "board"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
