"""Passages with questions: SQuAD's files and the hub's rows, or JSON lines whose rows share contexts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError
from benchmarks.data_files import DataPath, are_texts, check_columns, count_of, kind, text_of, wrong_value

DATA_SET = "rajpurkar/squad_v2"
#: of a JSON line; ``answers`` may be called ``answer``
COLUMNS = ("context", "question", "answers")
EXPECTED = (
    f"a SQuAD .json file, a .jsonl file with the columns {', '.join(COLUMNS)}, or a folder with files of one kind"
)
LAYOUT = "an object whose data lists articles with paragraphs, each with a context and qas"


class Asked(NamedTuple):
    """A question, its right answers, and the prefix and limit of the answer if the row has them."""

    question: str
    references: tuple[str, ...]
    answer_prefix: str | None = None
    max_new_tokens: int | None = None


class Passage(NamedTuple):
    text: str
    questions: tuple[Asked, ...]


class Passages(NamedTuple):
    """Passages with at least one question that has an answer, in the source's order.

    ``whole``: each is a finished context (JSON lines); otherwise they are paragraphs, to be joined up to a length.
    """

    found: tuple[Passage, ...]
    whole: bool


@cache
def read_passages(path: Path) -> Passages:
    """The passages of ``--data``. Raises :class:`BenchmarkError` with the place of the first fault, on files of two
    kinds, and if no question has an answer."""
    files = DataPath(path, EXPECTED).files(".json", ".jsonl") if path.is_dir() else [path]
    kinds = {kind(file) for file in files}
    if len(kinds) != 1 or not kinds <= {".json", ".jsonl"}:
        raise DataPath(path, EXPECTED).error("is in no known format")
    whole = kinds == {".jsonl"}
    rows = [row for file in files for row in (_lines(file) if whole else _squad(file))]
    return _gathered(rows, whole, f"--data {path}")


@cache
def published_passages() -> Passages:
    """The paragraphs of SQuAD 2.0's development set. :class:`BenchmarkError` if they are not available."""
    rows = hub.rows(DATA_SET, None, "validation", f"give its rows with --data: {EXPECTED}")
    found = (_row(row, f"{DATA_SET}, row {number}") for number, row in enumerate(rows))
    return _gathered(found, False, DATA_SET)


def _gathered(rows: Iterable[tuple[str, Asked]], whole: bool, source: str) -> Passages:
    """Questions by context, in the order of the contexts; those without an answer and repeated ones are left out."""
    by_text: dict[str, dict[str, Asked]] = {}
    for context, asked in rows:
        own = by_text.setdefault(context, {})
        if asked.references:
            own.setdefault(asked.question, asked)
    found = tuple(Passage(text, tuple(own.values())) for text, own in by_text.items() if own)
    if not found:
        raise BenchmarkError(f"{source} has no question with an answer; give {EXPECTED}")
    return Passages(found, whole)


def _squad(path: Path) -> Iterator[tuple[str, Asked]]:
    given = DataPath(path, EXPECTED)
    content = given.json()
    try:
        rows = [
            {"context": paragraph["context"], "question": question["question"], "answers": _texts(question)}
            for article in content["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except KeyError as error:
        raise given.error(f"is not in SQuAD's layout (no {error} where one is expected)") from None
    except TypeError:  # a number or a text where a list or an object should be
        raise given.error(f"is not in SQuAD's layout ({LAYOUT})") from None
    for number, row in enumerate(rows):
        yield _row(row, f"{path}, question {number}")


def _texts(question: dict[str, Any]) -> list[str]:
    return [] if question.get("is_impossible") else [answer["text"] for answer in question["answers"]]


def _lines(path: Path) -> Iterator[tuple[str, Asked]]:
    return (_row(row, place) for place, row in DataPath(path, EXPECTED).json_lines())


def _row(row: dict[str, Any], place: str) -> tuple[str, Asked]:
    """Context and question of one row. ``answers`` is a text, a list of texts, or ``{"text": [...]}`` as on the hub."""
    row = {"answers": row.get("answer"), **row}
    check_columns(row, COLUMNS, place, null=False)
    context, question = (text_of(row, name, place, blank=False) for name in ("context", "question"))
    answers = row["answers"].get("text") if isinstance(row["answers"], dict) else row["answers"]
    answers = [answers] if isinstance(answers, str) else answers
    if not are_texts(answers):
        raise wrong_value(place, "answers", "a text or a list of texts", row["answers"])
    prefix = None if row.get("answer_prefix") is None else text_of(row, "answer_prefix", place)
    limit = None if row.get("max_new_tokens") is None else count_of(row, "max_new_tokens", place, 1)
    references = tuple(dict.fromkeys(answer for answer in answers if answer.strip()))
    return context, Asked(question, references, prefix, limit)
