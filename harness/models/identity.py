"""What a model is beside its name: the commit of a hub model, the content of a local one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from harness.files import cache_folder, write_atomically

#: files of a model folder that can change a result
MODEL_FILES = (".json", ".jinja", ".safetensors", ".bin", ".model")
#: hashes of files by path, size and time, since reading all weights takes seconds a gigabyte
STORE = "file-hashes.json"


def model_files(folder: Path) -> list[Path]:
    """The files of a model folder that can change a result."""
    return [path for path in folder.iterdir() if path.suffix in MODEL_FILES and path.is_file()]


def files_hash(files: Iterable[Path]) -> str:
    """Hash of the names and the whole content of files, whatever their order."""
    digest = hashlib.sha256()
    for path, own in sorted(zip(*_hashes(list(files)), strict=True)):
        digest.update(f"{path.name} {own}\n".encode())
    return digest.hexdigest()[:16]


def commit_of(name: str) -> str | None:
    """The commit of a hub model that was read last, of all its branches the default one's; None for a local model."""
    if Path(name).exists():
        return None
    stored = try_to_load_from_cache(name, "config.json")
    found = re.search(r"[/\\]snapshots[/\\]([0-9a-f]{40})[/\\]", stored) if isinstance(stored, str) else None
    return found[1] if found else None


def _hashes(files: list[Path]) -> tuple[list[Path], list[str]]:
    """The SHA-256 of each file; of one that was read before and has the same size and time since, the stored one."""
    store = cache_folder() / STORE
    known = _read(store)
    found = {path: _key(path) for path in files}
    fresh = {key: _sha256(path) for path, key in found.items() if key not in known}
    if fresh:
        store.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(store, json.dumps(_read(store) | fresh, indent=0))
    known |= fresh
    return files, [known[found[path]] for path in files]


def _key(path: Path) -> str:
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


def _read(store: Path) -> dict[str, str]:
    try:
        return dict(json.loads(store.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
