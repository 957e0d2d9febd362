"""JSON of strangers: bounded in size, depth and numbers; no NaN, no duplicate keys, no half characters."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import stat
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from harness.results.jsonl import MOST_LINE, too_long
from harness.results.run_folder import most_unpacked
from harness.results.safe_text import quoted
from harness.validation.file_tree import MB
from harness.validation.findings import Finding, finding

#: deepest nesting; a summary has 5 levels
DEEPEST = 16
#: whole numbers beyond this are no longer exact in other readers of JSON
LARGEST = 2**53
MOST_UNPACKED = 256 * MB
#: gzip files that a packed file may be joined of; a run is packed as one
MOST_MEMBERS = 1_000
#: rows of a file, and malformed ones before the rest is left unread
MOST_ROWS, MOST_WRONG = 1_000_000, 1_000
_GZIP = b"\x1f\x8b\x08"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Refused(Exception):
    """Why a text is not JSON of a run: a finding's code and what is wrong."""

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
        raise Refused("not-json", f"is not JSON ({error})") from error
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
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Refused("duplicate-key", f"has the key {quoted(twice)} twice in one object")
    return found


def _whole(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > LARGEST:
        raise Refused("huge-number", f"has the number {text[:20]}{'...' if len(text) > 20 else ''}")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Refused("huge-number", f"has the number {text[:20]}, which is beyond doubles")
    return value


def _constant(text: str) -> NoReturn:
    raise Refused("not-finite", f"has {text} in place of a number")


def _depth(value: Any) -> int:
    depth, layer = 0, [value]
    while layer:
        depth += 1
        outer = (one.values() if isinstance(one, dict) else one for one in layer if isinstance(one, dict | list))
        layer = [inner for values in outer for inner in values if isinstance(inner, dict | list)]
    return depth


class Row(NamedTuple):
    """An object and its line from 1; None where it is the whole file."""

    number: int | None
    value: dict[str, Any]


class Loaded(NamedTuple):
    """What could be read of a file, None where nothing could, and what is wrong with the rest."""

    rows: list[Row] | None
    findings: list[Finding]


def load_object(path: Path) -> Loaded:
    """A file that is one JSON object."""
    try:
        return Loaded([Row(None, _object_of(_bytes(path)))], [])
    except Refused as error:
        return Loaded(None, [finding(error.code, path.name, None, error.what)])


def load_rows(path: Path) -> Loaded:
    """A file of one JSON object per line, packed where its name ends in ``.gz``."""
    name = path.name
    try:
        data = _unpacked(_bytes(path)) if name.endswith(".gz") else _bytes(path)
        if data.startswith(_GZIP):
            raise Refused("packed", "is packed twice" if name.endswith(".gz") else "is packed under this name")
        if data.startswith(_BYTE_ORDER_MARK):
            raise Refused("encoding", "begins with a byte order mark")
    except Refused as error:
        return Loaded(None, [finding(error.code, name, None, error.what)])
    rows: list[Row] = []
    found = [] if data.endswith(b"\n") else [_without_end(name, data)]
    for number, line in enumerate(io.BytesIO(data), 1):  # one at a time, and ended by \n only, never by \r
        if number > MOST_ROWS or len(found) > MOST_WRONG:
            why = f"has more than {MOST_ROWS:,} rows" if number > MOST_ROWS else f"has more than {MOST_WRONG} such rows"
            found.append(finding("too-large", name, number, f"{why}; the rest was not read"))
            break
        try:
            rows.append(Row(number, _row(line)))
        except Refused as error:
            found.append(finding(error.code, name, number, error.what))
    return Loaded(rows, found)


def _without_end(name: str, data: bytes) -> Finding:
    """A last line that is whole lost its newline in an editor; of any other the rest was never written."""
    try:
        _row(data[data.rfind(b"\n") + 1 :])
    except Refused:
        return finding("torn-line", name, data.count(b"\n") + 1, "the last line is cut off")
    return finding("no-newline", name, data.count(b"\n") + 1, "the last line is whole, but has no newline")


def _row(line: bytes) -> dict[str, Any]:
    if len(line) > MOST_LINE:
        raise Refused("long-line", too_long(len(line)))
    return _object_of(line.removesuffix(b"\n"))


def _object_of(data: bytes) -> dict[str, Any]:
    if data.startswith((_BYTE_ORDER_MARK, b"\xff\xfe", b"\xfe\xff")):
        raise Refused("encoding", "begins with a byte order mark")
    try:
        value = parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Refused("encoding", f"is not UTF-8 (byte {error.start:,})") from error
    if not isinstance(value, dict):
        raise Refused("schema", f"must be an object, it is {quoted(value)}")
    return value


def _bytes(path: Path) -> bytes:
    """The file's bytes; never through a link, and never waiting for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Refused("not-a-file", "is not a plain file")
            data = file.read()
    except OSError as error:
        raise Refused("unreadable", f"cannot be read ({error.strerror})") from error
    if not data:
        raise Refused("empty", "is empty")
    return data


def _unpacked(data: bytes) -> bytes:
    most = min(MOST_UNPACKED, most_unpacked(len(data)))
    if data.count(_GZIP) > MOST_MEMBERS:
        raise Refused("gzip", f"is joined of more than {MOST_MEMBERS:,} files")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused("gzip", f"cannot be unpacked ({error})") from error
    if len(unpacked) > most:
        raise Refused("bomb", f"unpacks to more than {most:,} bytes from {len(data):,}")
    if not unpacked:
        raise Refused("empty", "is empty")
    return unpacked
