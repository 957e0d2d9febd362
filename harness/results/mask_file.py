"""The file of a sample's keep masks: what each variant keeps of the context right after the prefill, and its tokens.

``masks/NAME.npz`` of a run folder, one a sample, written with ``--store-masks``. It holds no pickle and is read without
torch. A mask that several variants share is there once, as packed bits in the order of ``[L, H, T]``:

    about    JSON, see :class:`About`
    masks    uint8 ``[M, ceil(L * H * T / 8)]``, the different masks
    index    int32 ``[V]``, which of them each variant has
    tokens   JSON, the text of each token; only of benchmarks whose contexts may be shipped with a run
    lengths  int32 ``[T]``, the characters of each token; only of the others

While decoding a variant goes on to lose pairs; that is not in here.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from harness.errors import HarnessError

FOLDER = "masks"
#: a file is no larger, packed or unpacked; nor is its text
MOST_BYTES, MOST_TEXT = 2**28, 2**26
#: L x H x T of a mask
MOST_PAIRS = 2**29

Flags = NDArray[np.bool_]
Shares = NDArray[np.float64]
Count = Annotated[int, Field(ge=0, le=MOST_PAIRS)]


class About(BaseModel):
    """What a file says of itself.

    shape     L, H, T
    prefix    P, how many of the T tokens are the chat template's
    cut       tokens that were left out of the middle of the context
    variants  labels of those that have a mask; a variant that failed has none
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["kvprune masks 1"] = "kvprune masks 1"
    sample_id: str
    context_id: str
    benchmark: str
    subset: str
    length: int | None
    shape: tuple[Count, Count, Count]
    prefix: Count
    cut: Count
    variants: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StoredMasks:
    """The masks of one sample, as :func:`harness.results.mask_reading.read` gives them.

    tokens    the text of each of the T tokens, whose concatenation is the context's; None where it may not be shipped
    lengths   int32 ``[T]``, the characters of each token where ``tokens`` is None and they are known
    """

    about: About
    tokens: tuple[str, ...] | None
    lengths: NDArray[np.int32] | None
    packed: NDArray[np.uint8]
    index: NDArray[np.int32]

    @property
    def sample_id(self) -> str:
        return self.about.sample_id

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.about.shape

    @property
    def prefix(self) -> int:
        return self.about.prefix

    @property
    def variants(self) -> tuple[str, ...]:
        return self.about.variants

    def kept(self, variant: str) -> Flags:
        """The keep mask of a variant, bool ``[L, H, T]``. A variant that has none here: :class:`HarnessError`."""
        return np.unpackbits(self._bits(variant), count=math.prod(self.shape)).reshape(self.shape).astype(bool)

    def share_by_token(self, variant: str) -> Shares:
        """Of each token, the share of its pairs over layers and heads that is kept, ``[T]``, 0..1."""
        kept = self.kept(variant)
        return kept.mean(axis=(0, 1)) if self.shape[0] * self.shape[1] else np.ones(self.shape[2])

    def share_by_head(self, variant: str) -> Shares:
        """Of each layer's heads, the share of the context that is kept, ``[L, H]``, 0..1."""
        kept = self.kept(variant)
        return kept.mean(axis=2) if self.shape[2] else np.ones(self.shape[:2])

    def kept_pairs(self, variant: str) -> int:
        """How many pairs a variant keeps, which its lines have as ``kept_pairs``."""
        return int(np.bitwise_count(self._bits(variant)).sum())

    def removed(self, variant: str) -> float:
        """The removed fraction of a variant's mask, which its lines have as ``removed_context``; 0 of no pairs."""
        pairs = math.prod(self.shape)
        return (pairs - self.kept_pairs(variant)) / pairs if pairs else 0.0

    def _bits(self, variant: str) -> NDArray[np.uint8]:
        if variant not in self.variants:
            known = ", ".join(self.variants)
            raise HarnessError(f"no mask of variant {variant!r} is stored for {self.sample_id}; there are: {known}")
        bits: NDArray[np.uint8] = self.packed[self.index[self.variants.index(variant)]]
        return bits


def file_name(sample_id: str) -> str:
    """The name of a sample's file: what is readable of the id, and a hash of all of it."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", sample_id).strip("-")[:60] or "sample"
    return f"{readable}-{hashlib.sha256(sample_id.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.npz"


def path_of(run: Path, sample_id: str) -> Path:
    """Where the masks of a sample of a run folder lie, if they are stored."""
    return run / FOLDER / file_name(sample_id)


def write(
    path: Path,
    about: About,
    keep: Sequence[Flags],
    tokens: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
) -> None:
    """Write a sample's file, whole or not at all; the folder is made where it is missing.

    keep   the masks of ``about.variants`` in their order, bool ``[L, H, T]`` each

    Masks that are too large for :func:`harness.results.mask_reading.read`, and a place that cannot be written to:
    :class:`HarnessError`.
    """
    assert [mask.shape for mask in keep] == [about.shape] * len(about.variants)
    places: dict[bytes, int] = {}
    index = [places.setdefault(np.packbits(mask).tobytes(), len(places)) for mask in keep]
    width = -(-math.prod(about.shape) // 8)
    parts: dict[str, Any] = {
        "about": _json(about.model_dump(mode="json")),
        "masks": np.frombuffer(b"".join(places), np.uint8).reshape(len(places), width),
        "index": np.array(index, np.int32),
    }
    if tokens is not None:
        parts["tokens"] = _json(list(tokens))
    elif lengths is not None:
        parts["lengths"] = np.array(lengths, np.int32)
    text = max(parts[name].nbytes for name in ("about", "tokens") if name in parts)
    size = sum(part.nbytes for part in parts.values()) + 1024 * len(parts)
    if size > MOST_BYTES or text > MOST_TEXT or math.prod(about.shape) > MOST_PAIRS:
        raise HarnessError(f"the masks of {about.sample_id} are too large to store: {size:,} bytes of {MOST_BYTES:,}")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            np.savez_compressed(file, **parts)
        draft.replace(path)
    except OSError as error:
        raise HarnessError(f"{path} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _json(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)
