"""Problems of AIME 2025: from a local file of JSON lines, or from the hub's data set math-ai/aime25."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError

DATA_SET = "math-ai/aime25"
#: a local file's columns; the hub's rows call the second one ``problem``, which a file may too
COLUMNS = ("id", "question", "answer")


class Row(NamedTuple):
    id: str
    problem: str
    answer: int


def read_rows(path: Path) -> list[Row]:
    """The file's rows. Raises :class:`BenchmarkError` with file and line number on the first one that is broken, lacks
    a column, has an answer that is no whole number from 0 to 999, or repeats an id."""
    if path.is_dir():
        raise BenchmarkError(
            f"--data {path} is a folder; aime25 takes a .jsonl file with the columns {', '.join(COLUMNS)}"
        )
    rows: list[Row] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(_parsed(line, f"{path}, line {number}"))
                    if rows[-1].id in {row.id for row in rows[:-1]}:
                        raise BenchmarkError(f"{path}, line {number}: the id {rows[-1].id!r} comes twice")
    except OSError as error:
        raise BenchmarkError(f"--data {path} cannot be read: {error.strerror}; give a .jsonl file") from error
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"--data {path} is no UTF-8 text ({error.reason}); give a .jsonl file") from error
    if not rows:
        raise BenchmarkError(f"--data {path} has no rows; its lines need the columns {', '.join(COLUMNS)}")
    return rows


def hub_rows() -> list[Row]:
    """The hub's rows, from its local cache where they are there. :class:`BenchmarkError` where they cannot be had."""
    found = hub.rows(DATA_SET, None, "test", f"give its rows with --data FILE.jsonl, columns {', '.join(COLUMNS)}")
    rows = [{"id": str(number), **row} for number, row in enumerate(found)]
    return [_row(row, f"{DATA_SET}, row {number}") for number, row in enumerate(rows)]


def _parsed(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BenchmarkError(f"{place}: no JSON ({error.msg}, column {error.colno}); mend or remove the line") from None
    if not isinstance(row, dict):
        raise BenchmarkError(f"{place}: a JSON object is needed, got {type(row).__name__}")
    return _row(row, place)


def _row(row: dict[str, Any], place: str) -> Row:
    row = {"question": row.get("problem"), **row}
    missing = [name for name in COLUMNS if row.get(name) is None]
    if missing:
        raise BenchmarkError(f"{place}: no column {', '.join(missing)}; needed: {', '.join(COLUMNS)}")
    for name in ("id", "question"):
        if not isinstance(row[name], str) or not row[name].strip():
            raise BenchmarkError(f"{place}: {name} must be a text that is not empty, got {json.dumps(row[name])[:60]}")
    answer = row["answer"] if isinstance(row["answer"], str | int) else ""
    text = str(answer).strip()
    if isinstance(answer, bool) or not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < 1000):
        got = json.dumps(row["answer"])[:60]
        raise BenchmarkError(f"{place}: answer must be a whole number from 0 to 999, got {got}")
    return Row(row["id"], row["question"].strip(), int(text))
