"""One process at a time on a run folder, and where things are kept outside of results. No model code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from benchmarks.base import content_hash
from harness.errors import HarnessError
from harness.results.run_folder import RunFolder


def cache_folder() -> Path:
    """Where models and generated samples are kept: ``$XDG_CACHE_HOME/kvprune``, by default ``~/.cache/kvprune``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvprune"


@contextmanager
def alone(folder: RunFolder) -> Iterator[None]:
    """A lock outside the run folder, which holds results only; it goes with the process, however that ends."""
    locks = cache_folder() / "locks"
    lock = FileLock(locks / f"{content_hash(str(folder.path.resolve()))}.lock", timeout=0)
    try:
        locks.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise HarnessError(f"another process is at work on {folder.path}; wait for it, or stop it first") from None
    except OSError as error:
        raise HarnessError(f"{locks} cannot be written to ({error}); set XDG_CACHE_HOME to another folder") from error
    try:
        yield
    finally:
        lock.release()
