"""Passages with questions: SQuAD's files and the hub's rows, or JSON lines whose rows share contexts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError

DATA_SET = "rajpurkar/squad_v2"
#: of a JSON line; ``answers`` may be called ``answer``
COLUMNS = ("context", "question", "answers")
TAKES = f"a SQuAD .json file, a .jsonl file with the columns {', '.join(COLUMNS)}, or a folder with files of one kind"


class Asked(NamedTuple):
    """A question, its right answers, and what a row may say of how it is asked (None: it does not)."""

    question: str
    references: tuple[str, ...]
    answer_prefix: str | None = None
    max_new_tokens: int | None = None


class Passage(NamedTuple):
    text: str
    questions: tuple[Asked, ...]


class Passages(NamedTuple):
    """Passages with at least one question that has an answer, in the source's order.

    ``whole``: each is a context as it stands (JSON lines); otherwise they are paragraphs, to be joined to a length.
    """

    found: tuple[Passage, ...]
    whole: bool


@cache
def read(path: Path) -> Passages:
    """The passages of ``--data``. Raises :class:`BenchmarkError` with the place on the first thing that is broken, on
    files of two kinds, and where nothing has an answer."""
    files = sorted(p for p in path.iterdir() if p.suffix in (".json", ".jsonl")) if path.is_dir() else [path]
    kinds = {file.suffix for file in files}
    if len(kinds) != 1 or not kinds <= {".json", ".jsonl"}:
        raise BenchmarkError(f"--data {path}: give {TAKES}")
    whole = kinds == {".jsonl"}
    rows = [row for file in files for row in (_lines(file) if whole else _squad(file))]
    return _gathered(rows, whole, f"--data {path}")


@cache
def published() -> Passages:
    """The paragraphs of SQuAD 2.0's development set. :class:`BenchmarkError` where they cannot be had."""
    rows = hub.rows(DATA_SET, None, "validation", f"give its rows with --data: {TAKES}")
    found = (_row(row, f"{DATA_SET}, row {number}") for number, row in enumerate(rows))
    return _gathered(found, False, DATA_SET)


def _gathered(rows: Iterable[tuple[str, Asked]], whole: bool, source: str) -> Passages:
    """Rows by context, each context where it came first; questions without an answer and repeated ones left out."""
    by_text: dict[str, dict[str, Asked]] = {}
    for context, asked in rows:
        own = by_text.setdefault(context, {})
        if asked.references:
            own.setdefault(asked.question, asked)
    found = tuple(Passage(text, tuple(own.values())) for text, own in by_text.items() if own)
    if not found:
        raise BenchmarkError(f"{source} has no question with an answer; give {TAKES}")
    return Passages(found, whole)


def _squad(path: Path) -> Iterator[tuple[str, Asked]]:
    try:
        articles = json.loads(_text(path))["data"]
        rows = [
            {"context": paragraph["context"], "question": question["question"], "answers": _texts(question)}
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except json.JSONDecodeError as error:
        raise BenchmarkError(f"--data {path} is no JSON ({error.msg}, line {error.lineno}); give {TAKES}") from None
    except (KeyError, TypeError) as error:
        raise BenchmarkError(f"--data {path} is not laid out as SQuAD ({type(error).__name__}: {error})") from None
    for number, row in enumerate(rows):
        yield _row(row, f"{path}, question {number}")


def _texts(question: dict[str, Any]) -> list[str]:
    return [] if question.get("is_impossible") else [answer["text"] for answer in question["answers"]]


def _lines(path: Path) -> Iterator[tuple[str, Asked]]:
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise BenchmarkError(f"{place}: no JSON ({error.msg}, column {error.colno}); mend it") from None
            if not isinstance(row, dict):
                raise BenchmarkError(f"{place}: a JSON object is needed, got {type(row).__name__}")
            yield _row(row, place)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise BenchmarkError(f"--data {path} cannot be read: {error.strerror}; give {TAKES}") from error
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"--data {path} is no UTF-8 text ({error.reason}); give {TAKES}") from error


def _row(row: dict[str, Any], place: str) -> tuple[str, Asked]:
    """Context and question of one row. ``answers`` is a text, a list of texts, or ``{"text": [...]}`` as on the hub."""
    row = {"answers": row.get("answer"), **row}
    missing = [name for name in COLUMNS if row.get(name) is None]
    if missing:
        raise BenchmarkError(f"{place}: no column {', '.join(missing)}; needed: {', '.join(COLUMNS)}")
    for name in ("context", "question"):
        if not isinstance(row[name], str) or not row[name].strip():
            raise BenchmarkError(f"{place}: {name} must be a text that is not empty, got {json.dumps(row[name])[:60]}")
    answers = row["answers"].get("text") if isinstance(row["answers"], dict) else row["answers"]
    answers = [answers] if isinstance(answers, str) else answers
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise BenchmarkError(f"{place}: answers must be a text or a list of texts, got {json.dumps(answers)[:60]}")
    prefix, limit = row.get("answer_prefix"), row.get("max_new_tokens")
    if prefix is not None and not isinstance(prefix, str):
        raise BenchmarkError(f"{place}: answer_prefix must be a text, got {json.dumps(prefix)[:60]}")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise BenchmarkError(f"{place}: max_new_tokens must be a whole number from 1, got {json.dumps(limit)[:60]}")
    references = tuple(dict.fromkeys(answer for answer in answers if answer.strip()))
    return row["context"], Asked(row["question"], references, prefix, limit)
