"""JSON of strangers: bounded in size, depth and numbers; no NaN, no doubled keys, no half characters."""

from __future__ import annotations

import json
import math
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from harness.results.run_folder import most_unpacked
from harness.safe_text import quoted
from harness.validation.findings import Finding, finding

MB = 2**20
#: largest line; a context of 128,000 tokens has about half a million characters
MOST_LINE = 4 * MB
#: deepest nesting; a summary has 5 levels
DEEPEST = 16
#: whole numbers beyond this are no longer exact in other readers of JSON
LARGEST = 2**53
MOST_UNPACKED = 256 * MB
#: gzip files that a packed file may be joined of; a run is packed as one
MOST_MEMBERS = 1_000
#: rows of a file, and those of them that are no rows of a run before the rest is left unread
MOST_ROWS, MOST_WRONG = 1_000_000, 1_000
_CHUNK = 2**16
_GZIP = b"\x1f\x8b\x08"


class Refused(Exception):
    """Why a text is no JSON of a run: a finding's code and what is wrong."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code, self.what = code, what


def parse(text: str) -> Any:
    """The value of a JSON text; :class:`Refused` where it has anything that a run never writes."""
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_whole, parse_float=_fraction, parse_constant=_constant
        )
    except RecursionError:
        raise Refused("nesting", f"is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        raise Refused("not-json", f"is no JSON ({error})") from error
    if _depth(value) > DEEPEST:
        raise Refused("nesting", f"is nested deeper than {DEEPEST} levels")
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Refused("surrogate", "has half of a surrogate pair in a text") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Refused("duplicate-key", f"has the key {quoted(twice)} twice in one object")
    return found


def _whole(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > LARGEST:
        raise Refused("huge-number", f"has the number {text[:20]}{'...' if len(text) > 20 else ''}")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Refused("huge-number", f"has the number {text[:20]}, which is no double")
    return value


def _constant(text: str) -> NoReturn:
    raise Refused("not-finite", f"has {text} in place of a number")


def _depth(value: Any) -> int:
    depth, layer = 0, [value]
    while layer:
        depth += 1
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return depth


class Row(NamedTuple):
    """A line of a file and its number, from 1."""

    number: int
    value: dict[str, Any]


class Loaded(NamedTuple):
    """What could be read of a file, and what is wrong with the rest. ``value`` None: nothing could."""

    value: Any
    rows: list[Row]
    findings: list[Finding]


def load_object(path: Path, name: str) -> Loaded:
    """A file that is one JSON object."""
    try:
        value = parse(_text(_bytes(path)))
        if not isinstance(value, dict):
            raise Refused("schema", f"must hold an object, it holds {quoted(value)}")
    except Refused as error:
        return Loaded(None, [], [finding(error.code, name, None, error.what)])
    return Loaded(value, [], [])


def load_rows(path: Path, name: str) -> Loaded:
    """A file of one JSON object a line, packed where its name ends in ``.gz``."""
    try:
        data = _unpacked(_bytes(path)) if name.endswith(".gz") else _bytes(path)
        if data.startswith(_GZIP):
            raise Refused("packed", "is packed twice" if name.endswith(".gz") else "is packed under this name")
        if data.startswith(b"\xef\xbb\xbf"):
            raise Refused("encoding", "begins with a byte order mark")
    except Refused as error:
        return Loaded(None, [], [finding(error.code, name, None, error.what)])
    rows: list[Row] = []
    found: list[Finding] = []
    if not data.endswith(b"\n"):
        found.append(_without_end(name, data))
    for number, line in enumerate(_lines(data), 1):
        if number > MOST_ROWS or len(found) > MOST_WRONG:
            why = f"has more than {MOST_ROWS:,} rows" if number > MOST_ROWS else f"has more than {MOST_WRONG} such rows"
            found.append(finding("too-large", name, number, f"{why}; the rest was not read"))
            break
        try:
            rows.append(Row(number, _row(line)))
        except Refused as error:
            found.append(finding(error.code, name, number, error.what))
    return Loaded(rows, rows, found)


def _without_end(name: str, data: bytes) -> Finding:
    """A last line that is whole lost its newline in an editor; of any other the rest was never written."""
    start = data.rfind(b"\n") + 1
    try:
        _row(data[start:])
    except Refused:
        return finding("torn-line", name, data.count(b"\n") + 1, "the last line has no end")
    return finding("no-newline", name, data.count(b"\n") + 1, "the last line is whole, but has no newline")


def _lines(data: bytes) -> Iterator[bytes]:
    """One at a time: a list of all of them is larger than the file where they are empty."""
    start = 0
    while start < len(data):
        stop = data.find(b"\n", start)
        stop = len(data) if stop < 0 else stop
        yield data[start:stop]
        start = stop + 1


def _row(line: bytes) -> dict[str, Any]:
    if len(line) > MOST_LINE:
        raise Refused("long-line", f"has {len(line):,} bytes, of at most {MOST_LINE:,}")
    value = parse(_text(line))
    if not isinstance(value, dict):
        raise Refused("schema", f"must be an object, it is {quoted(value)}")
    return value


def _text(data: bytes) -> str:
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise Refused("encoding", "begins with a byte order mark")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("encoding", f"is not UTF-8 (byte {error.start:,})") from error


def _bytes(path: Path) -> bytes:
    """The file's bytes; never through a link, and never waiting for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Refused("not-a-file", "is no plain file")
            data = file.read()
    except OSError as error:
        raise Refused("unreadable", f"cannot be read ({error.strerror})") from error
    if not data:
        raise Refused("empty", "is empty")
    return data


def _unpacked(data: bytes) -> bytes:
    most = min(MOST_UNPACKED, most_unpacked(len(data)))
    unpacked, place, members = bytearray(), 0, 0
    try:
        while place < len(data):  # a gzip file may have several members
            members += 1
            if members > MOST_MEMBERS:
                raise Refused("gzip", f"is joined of more than {MOST_MEMBERS:,} files")
            member = zlib.decompressobj(wbits=31)
            while not member.eof:  # in chunks: what is behind a member is copied each time
                chunk = data[place : place + _CHUNK]
                if not chunk:
                    raise Refused("gzip", "ends in the middle of the packed data")
                unpacked += member.decompress(chunk, most - len(unpacked) + 1)
                if len(unpacked) > most:
                    raise Refused("bomb", f"unpacks to more than {most:,} bytes from {len(data):,}")
                place += len(chunk) - len(member.unused_data)
    except zlib.error as error:
        raise Refused("gzip", f"is not gzip ({error})") from error
    if not unpacked:
        raise Refused("empty", "is empty")
    return bytes(unpacked)
