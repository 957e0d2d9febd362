"""Reading a sample's stored masks (:mod:`harness.results.mask_file`). Run folders come from strangers: nothing in the
file is trusted, no pickle is opened, and nothing larger is unpacked than a mask may be.
"""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from harness.errors import HarnessError
from harness.results.mask_file import MOST_BYTES, MOST_PAIRS, MOST_TEXT, About, StoredMasks

#: the directory at the end of a zip file of five parts
MOST_DIRECTORY = 4096
_TOKENS = TypeAdapter(tuple[str, ...])
#: what a file that is damaged, or something else altogether, makes its readers raise
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    SyntaxError,
    tokenize.TokenError,
    RuntimeError,
    MemoryError,
    OverflowError,
    zlib.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
)


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
    except _UNREADABLE as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HarnessError(
            f"{path} cannot be read as stored masks ({told}); the same command with --store-masks makes it anew"
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
        raise ValueError("it is no .npz file of a run")
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
        raise ValueError(f"its part {name} is no array of a run")
    shape, fortran, kind = np.lib.format.read_array_header_1_0(stream)
    rest = data[stream.tell() :]
    if fortran or kind != np.dtype(dtype) or len(shape) != dimensions or min(shape) < 0:
        raise ValueError(f"its part {name} is another kind of array")
    if math.prod(shape) * kind.itemsize != len(rest):
        raise ValueError(f"its part {name} is not whole")
    return np.frombuffer(rest, kind).reshape(shape) if rest else np.zeros(shape, kind)
