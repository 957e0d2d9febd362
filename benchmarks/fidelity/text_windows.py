"""Any text as samples: text files, cut into windows of a context and what comes next."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.base import BenchmarkError, Text
from benchmarks.data_files import DataPath, check_columns, kind, text_of, without_copies

#: fewest tokens of a context
SHORTEST = 16
#: most tokens that follow a context, and fewest that make a sample
TARGET, LEAST = 256, 16
#: where a text may be cut: before a word, and inside long runs without a space
_PIECE = re.compile(r"\s*\S{1,16}")
COLUMN = "text"
EXPECTED = f"a text file, a .jsonl file with the column {COLUMN}, or a folder of such files"


def read_texts(path: Path) -> list[str]:
    """The documents of a text file, of a ``.jsonl`` file (its column ``text``), or of all ``.txt`` and ``.jsonl`` files
    in a folder and its subfolders, by name. :class:`BenchmarkError` if there are none, or a file is broken."""
    if path.is_dir():
        DataPath(path, EXPECTED).files()  # rglob silently skips a folder that cannot be listed
        files = without_copies(file for file in path.rglob("*") if kind(file) in (".txt", ".jsonl"))
        if not files:
            raise BenchmarkError(f"--data {path} is a folder without .txt or .jsonl files; give one that has some")
    else:
        files = [path]
    found = [text for file in files for text in _read(file)]
    if not found:
        raise BenchmarkError(f"--data {path} has no text; give a file that has some")
    return found


def _read(path: Path) -> list[str]:
    given = DataPath(path, EXPECTED)
    rows = kind(path) == ".jsonl"
    texts = [_text(row, place) for place, row in given.json_lines()] if rows else [given.text()]
    return [text.strip() for text in texts if text.strip()]


def _text(row: dict[str, Any], place: str) -> str:
    check_columns(row, (COLUMN,), place)
    return text_of(row, COLUMN, place)


def windows(document: str, length: int, text: Text) -> Iterator[tuple[str, str, str]]:
    """Context, question and target of each window. The context takes at most ``length`` tokens, and one more piece
    would exceed it; the question is the piece after it; the target takes at most :data:`TARGET` tokens."""
    pieces = _PIECE.findall(document)
    place = 0
    while True:
        context = _fitting(pieces, place, length, text)
        asked = place + context
        rest = _fitting(pieces, asked + 1, TARGET, text)
        target = "".join(pieces[asked + 1 : asked + 1 + rest])
        if not context or len(text.encode(target)) < LEAST:
            return
        yield "".join(pieces[place:asked]), pieces[asked], target
        place = asked + 1 + rest


def _fitting(pieces: list[str], place: int, room: int, text: Text) -> int:
    """The most pieces from ``place`` on that take at most ``room`` tokens; each takes at least one."""
    most = min(max(0, len(pieces) - place), room + 1)
    return bisect_right(range(most + 1), room, key=lambda n: len(text.encode("".join(pieces[place : place + n])))) - 1
