"""Generated samples kept on disk, so that a second start neither generates nor imports the generators."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs

from benchmarks.base import Sample, content_hash
from benchmarks.data_files import DataPath


def cached_samples(name: str, key: dict[str, Any], count: int, generate: Callable[[], list[Sample]]) -> list[Sample]:
    """The first ``count`` samples of a stream: from its file if that holds as many, else generated and written there.

    name       start of the file's name
    key        everything that the samples depend on except their number
    generate   makes ``count`` samples; sample i must not depend on their number

    Files are in ``benchmarks`` under the user's cache folder. A file that is damaged or belongs to another key is
    rewritten. A folder that cannot be written to only causes a warning.
    """
    path = platformdirs.user_cache_path("kvprune") / "benchmarks" / f"{name}-{content_hash(key)}.jsonl"
    kept = _read(path, key)
    if kept is not None and len(kept) >= count:
        return kept[:count]
    samples = generate()
    try:
        _write(path, key, samples)
    except OSError as error:
        warnings.warn(f"generated samples are not kept, {path} cannot be written: {error}", stacklevel=2)
    return samples


def _read(path: Path, key: dict[str, Any]) -> list[Sample] | None:
    """The file's samples; None if it is missing, damaged or of another key."""
    try:
        head, body = path.read_text("utf-8").split("\n", 1)
        if json.loads(head) != _head(key, body):
            return None
        rows = DataPath(path, "").parse_lines(body.encode().split(b"\n"))
        return [Sample.from_json(row) for _, row in rows]
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, key: dict[str, Any], samples: list[Sample]) -> None:
    """Written beside its place, then moved there: another process sees all of it or nothing."""
    body = "".join(json.dumps(sample.to_json()) + "\n" for sample in samples)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(_head(key, body)) + "\n" + body, "utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _head(key: dict[str, Any], body: str) -> dict[str, Any]:
    return {"key": key, "sha256": hashlib.sha256(body.encode()).hexdigest()}
