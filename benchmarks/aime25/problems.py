"""Problems of AIME 2025: from a local file of JSON lines, or from the hub's data set math-ai/aime25."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError
from benchmarks.data_files import DataPath, check_columns, text_of, wrong_value

DATA_SET = "math-ai/aime25"
#: a local file's columns; the second one may be called ``problem``, as in the hub's rows
COLUMNS = ("id", "question", "answer")
EXPECTED = f"a .jsonl file with the columns {', '.join(COLUMNS)}"


class Row(NamedTuple):
    id: str
    problem: str
    answer: int


def read_rows(path: Path) -> list[Row]:
    """The file's rows. Raises :class:`BenchmarkError` with file and line number on the first one that is broken, lacks
    a column, has an answer that is not a whole number from 0 to 999, or repeats an id."""
    given = DataPath(path, EXPECTED)
    if path.is_dir():
        raise BenchmarkError(f"--data {path} is a folder; aime25 takes {EXPECTED}")
    rows: dict[str, Row] = {}
    for place, row in given.json_lines():
        found = _row(row, place)
        if found.id in rows:
            raise BenchmarkError(f"{place}: the id {found.id!r} appears twice; give each problem its own id")
        rows[found.id] = found
    if not rows:
        raise BenchmarkError(f"--data {path} has no rows; its lines need the columns {', '.join(COLUMNS)}")
    return list(rows.values())


def hub_rows() -> list[Row]:
    """The hub's rows, from its local cache if they are there. :class:`BenchmarkError` if they are not available."""
    found = hub.rows(DATA_SET, None, "test", f"give its rows with --data FILE.jsonl, columns {', '.join(COLUMNS)}")
    rows = [{"id": str(number), **row} for number, row in enumerate(found)]
    return [_row(row, f"{DATA_SET}, row {number}") for number, row in enumerate(rows)]


def _row(row: dict[str, Any], place: str) -> Row:
    row = {"question": row.get("problem"), **row}
    check_columns(row, COLUMNS, place, null=False)
    name, question = (text_of(row, column, place, blank=False) for column in ("id", "question"))
    answer = row["answer"] if isinstance(row["answer"], str | int) else ""
    text = str(answer).strip()
    if isinstance(answer, bool) or not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < 1000):
        raise wrong_value(place, "answer", "a whole number from 0 to 999", row["answer"])
    return Row(name, question.strip(), int(text))
