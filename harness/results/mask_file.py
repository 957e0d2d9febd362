"""The file of a sample's keep masks: what each variant keeps of the context right after the prefill, and its tokens.

``masks/NAME.npz`` of a run folder, one per sample, written with ``--store-masks``. It holds no pickle and is read
without torch; run folders come from strangers, so nothing in a file is trusted and no more is unpacked than a mask may
take. A mask that several variants share is stored once, as packed bits in the order of ``[L, H, T]``:

    about    JSON, see :class:`About`
    masks    uint8 ``[M, ceil(L * H * T / 8)]``, the different masks
    index    int32 ``[V]``, which of them each variant has
    tokens   JSON, the text of each token; only of benchmarks whose contexts may be redistributed with a run
    lengths  int32 ``[T]``, the characters of each token; only of the others

Pairs evicted while decoding are not included.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from harness.errors import HarnessError
from harness.files import replacing

FOLDER = "masks"
#: a file is no larger, packed or unpacked; nor is its text
MOST_BYTES, MOST_TEXT = 2**28, 2**26
#: L x H x T of a mask
MOST_PAIRS = 2**29
#: the directory at the end of a zip file of five parts
MOST_DIRECTORY = 4096
_TOKENS = TypeAdapter(tuple[str, ...])

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
    """The masks of one sample, as :func:`read` gives them.

    tokens    the text of each of the T tokens, together the context's; None where that may not be redistributed
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

    Masks that are too large for :func:`read`, and a place that cannot be written to:
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, **parts)
    except OSError as error:
        raise HarnessError(f"{path} cannot be written: {error}") from error


def _json(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def read(path: Path) -> StoredMasks:
    """A sample's file. Nothing in it is trusted, its sizes least of all; one that is missing, damaged or foreign:
    :class:`HarnessError`."""
    try:
        if not path.is_file():
            raise ValueError("no such file")
        with path.open("rb") as file:
            _check_ends(file)
            with zipfile.ZipFile(file) as archive:
                return _checked(archive)
    except Exception as error:  # a damaged file makes zipfile, NumPy's header parser and pydantic raise anything
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HarnessError(
            f"{path} cannot be read as stored masks ({told}); the same command with --store-masks writes it again"
        ) from error


def _check_ends(file: Any) -> None:
    """Refuse a file whose directory alone would take memory and time: it is read before any of its names is seen."""
    if file.read(4) != b"PK\x03\x04":
        raise ValueError("something stands before its parts")
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 42, 0))
    tail = file.read(42)
    end = tail[-22:]
    if not end.startswith(b"PK\x05\x06") or tail[:-22].startswith(b"PK\x06\x07"):
        raise ValueError("it is not an .npz file of a run")
    if size > MOST_BYTES or int.from_bytes(end[12:16], "little") > MOST_DIRECTORY:
        raise ValueError("it is too large")


def _checked(archive: zipfile.ZipFile) -> StoredMasks:
    names = [info.filename for info in archive.infolist()]
    known = {f"{name}.npy" for name in ("about", "masks", "index", "tokens", "lengths")}
    if len(set(names)) < len(names) or not set(names) <= known:
        raise ValueError("it holds something else")
    about = About.model_validate_json(_part(archive, "about", np.uint8, 1, MOST_TEXT).tobytes())
    pairs, cached = math.prod(about.shape), about.shape[2]
    if pairs > MOST_PAIRS:
        raise ValueError("its masks are too large")
    index = _part(archive, "index", np.int32, 1, MOST_TEXT)
    packed = _part(archive, "masks", np.uint8, 2, MOST_BYTES)
    tokens = lengths = None
    if "tokens.npy" in names:
        tokens = _TOKENS.validate_json(_part(archive, "tokens", np.uint8, 1, MOST_TEXT).tobytes())
    elif "lengths.npy" in names:
        lengths = _part(archive, "lengths", np.int32, 1, MOST_TEXT)
    fits = (
        len(index) == len(about.variants) == len(set(about.variants))
        and packed.shape[1] == -(-pairs // 8)
        and bool(((index >= 0) & (index < len(packed))).all())
        and not bool((packed[:, -1:] & ((1 << -pairs % 8) - 1)).any())  # no bits after the last pair
        and about.prefix <= cached
        and (tokens is None or len(tokens) == cached)
        and (lengths is None or (len(lengths) == cached and bool((lengths >= 0).all())))
    )
    if not fits:
        raise ValueError("its parts do not fit together")
    return StoredMasks(about, tokens, lengths, packed, index)


def _part(archive: zipfile.ZipFile, name: str, dtype: type[Any], dimensions: int, most: int) -> NDArray[Any]:
    """One array, unpacked no further than to the size it may have. Its header is held against what there is before
    anything is made of it, as the header of a foreign file may name any size."""
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > most or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its part {name} is too large or packed in another way")
    with archive.open(info) as file:
        data = file.read(info.file_size + 1)
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"its part {name} is not an array of a run")
    shape, fortran, kind = np.lib.format.read_array_header_1_0(stream)
    rest = data[stream.tell() :]
    if fortran or kind != np.dtype(dtype) or len(shape) != dimensions or min(shape) < 0:
        raise ValueError(f"its part {name} is another kind of array")
    if math.prod(shape) * kind.itemsize != len(rest):
        raise ValueError(f"its part {name} is not whole")
    return np.frombuffer(rest, kind).reshape(shape) if rest else np.zeros(shape, kind)
