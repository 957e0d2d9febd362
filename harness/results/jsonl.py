"""JSON Lines: one value per line, read into records; a line at fault is named by its number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

from pydantic import ValidationError

from harness.results.schema import Record, fault

R = TypeVar("R", bound=Record)

#: bytes of the longest line; a context of 128,000 tokens has about half a million characters
MOST_LINE = 4 * 2**20


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The rows that have an end, and what follows the last of them: nothing, or what a killed writer left.

    Only a newline ends a row. ``splitlines`` and text mode also break at ``\\r`` and at characters such as U+2028,
    which JSON leaves as they are within a text.
    """
    *rows, tail = data.split(b"\n")
    return rows, tail


def parse(kind: type[R], data: bytes, appended: bool = True) -> Iterator[R]:
    """The records of a file; fields that are not known are passed over. ``ValueError`` with number and fault of a row
    that is broken. Where rows were ``appended`` one by one, a last one that a kill left unfinished is passed over."""
    rows, tail = split(data)
    if tail and not appended:
        rows, tail = [*rows, tail], b""
    for number, row in enumerate(rows, 1):
        if len(row) > MOST_LINE:
            raise ValueError(f"line {number}: {too_long(len(row))}")
        try:
            yield kind.model_validate_json(row, strict=True, extra="ignore")
        except ValidationError as error:
            raise ValueError(f"line {number}: {fault(error)}") from error
    if len(tail) > MOST_LINE:
        raise ValueError(f"line {len(rows) + 1}: {too_long(len(tail))}")
    if tail:
        with suppress(ValidationError):
            yield kind.model_validate_json(tail, strict=True, extra="ignore")


def too_long(size: int) -> str:
    return f"has {size:,} bytes, of at most {MOST_LINE:,}"
