"""Features and targets on disk: float16, one file per layer, one block of rows per document, written once.

Blocks are mapped only while they are used, so resident memory does not grow with the number of documents.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harness.errors import HarnessError

NUMBER = np.dtype(np.float16)
LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Shape:
    """Layers, features F and heads H of what is stored."""

    layers: int
    features: int
    heads: int

    def size(self, rows: int) -> int:
        """Bytes that ``rows`` tokens take."""
        return self.layers * rows * (self.features + self.heads) * NUMBER.itemsize


class Store:
    """Rows of documents in the order given. ``done`` documents are complete; the count is written after their rows,
    so a run that was killed resumes with the next one."""

    def __init__(self, folder: Path, shape: Shape, rows: Sequence[int]) -> None:
        self.folder = folder
        self.shape = shape
        self.ends = list(accumulate(rows))
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def done(self) -> int:
        """Complete documents, no more than this store was opened for."""
        return min(read_count(self.folder / "done.json"), len(self.ends))

    def span(self, document: int) -> slice:
        """The rows of a document."""
        return slice(self.ends[document - 1] if document else 0, self.ends[document])

    def missing_bytes(self) -> int:
        """Bytes that are still to be written."""
        done = self.done
        return self.shape.size((self.ends[-1] if self.ends else 0) - (self.ends[done - 1] if done else 0))

    def put(self, document: int, layer: int, features: Tensor, targets: Tensor) -> None:
        """Write one layer of a document: features ``[rows, F]``, targets ``[rows, H]``."""
        for kind, values in (("x", features), ("y", targets)):
            rounded = values.clamp(-LARGEST, LARGEST).half().cpu().numpy()
            with _create(self._path(kind, layer)) as file:
                file.seek(self.span(document).start * rounded.shape[1] * NUMBER.itemsize)
                file.write(np.ascontiguousarray(rounded).tobytes())

    def finish(self, document: int) -> None:
        """All layers of ``document`` are written."""
        write_count(self.folder / "done.json", document + 1)

    def features(self, layer: int, rows: slice) -> NDArray[np.float16]:
        """Mapped rows ``[rows, F]`` of a layer; copy what is to be kept."""
        return self._map("x", layer, rows, self.shape.features)

    def targets(self, layer: int, rows: slice) -> NDArray[np.float16]:
        """Mapped rows ``[rows, H]`` of a layer."""
        return self._map("y", layer, rows, self.shape.heads)

    def _path(self, kind: str, layer: int) -> Path:
        return self.folder / f"{kind}-{layer:03}.f16"

    def _map(self, kind: str, layer: int, rows: slice, width: int) -> NDArray[np.float16]:
        path, count = self._path(kind, layer), rows.stop - rows.start
        offset = rows.start * width * NUMBER.itemsize
        if not path.is_file() or path.stat().st_size < offset + count * width * NUMBER.itemsize:
            raise HarnessError(f"{path} is too short for what was recorded as collected; delete {self.folder}")
        return np.memmap(path, dtype=NUMBER, mode="r", offset=offset, shape=(count, width))


def _create(path: Path):  # type: ignore[no-untyped-def]
    return path.open("r+b" if path.exists() else "w+b")


def read_count(path: Path) -> int:
    """The number of documents that ``path`` records; 0 where there is none."""
    return int(json.loads(path.read_text())["documents"]) if path.is_file() else 0


def write_count(path: Path, count: int) -> None:
    """Record a number of documents, whole or not at all."""
    replace(path, json.dumps({"documents": count}).encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)
