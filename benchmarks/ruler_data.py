"""RULER rows from a local file: JSON lines with ``context, question, answer_prefix, answer, task, max_new_tokens``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.base import BenchmarkError, Sample, content_hash

COLUMNS = ("context", "question", "answer_prefix", "answer", "task", "max_new_tokens")


def read_rows(path: Path, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """The file's rows, ``answer`` as a list, other columns left out.

    Raises :class:`BenchmarkError` with the file and the line number on the first row that is broken, lacks a column,
    has a value of another type, or names a task that is not in ``tasks``.
    """
    if path.is_dir():
        raise BenchmarkError(
            f"--data {path} is a folder; ruler takes a .jsonl file with the columns {', '.join(COLUMNS)}"
        )
    rows = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(_row(line, f"{path}, line {number}", tasks))
    except OSError as error:
        raise BenchmarkError(f"--data {path} cannot be read: {error.strerror}; give a .jsonl file") from error
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"--data {path} is no UTF-8 text ({error.reason}); give a .jsonl file") from error
    if not rows:
        raise BenchmarkError(f"--data {path} has no rows; its lines need the columns {', '.join(COLUMNS)}")
    return rows


def _row(line: str, place: str, tasks: Sequence[str]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BenchmarkError(f"{place}: no JSON ({error.msg}, column {error.colno}); mend or remove the line") from None
    if not isinstance(row, dict):
        raise BenchmarkError(f"{place}: a JSON object is needed, got {type(row).__name__}")
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise BenchmarkError(f"{place}: no column {', '.join(missing)}; needed: {', '.join(COLUMNS)}")
    for name in ("context", "question", "answer_prefix", "task"):
        if not isinstance(row[name], str):
            raise BenchmarkError(f"{place}: {name} must be a string, got {json.dumps(row[name])[:60]}")
    if row["task"] not in tasks:
        raise BenchmarkError(f"{place}: unknown task {row['task']!r}; known: {', '.join(tasks)}")
    answers = [row["answer"]] if isinstance(row["answer"], str) else row["answer"]
    if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one for one in answers):
        got = json.dumps(row["answer"])[:60]
        raise BenchmarkError(f"{place}: answer must be a string or a list of strings, none of them empty; got {got}")
    limit = row["max_new_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise BenchmarkError(f"{place}: max_new_tokens must be a whole number from 1, got {json.dumps(limit)[:60]}")
    return {**{name: row[name] for name in COLUMNS}, "answer": answers}


def as_samples(rows: list[dict[str, Any]], length: int | None) -> list[Sample]:
    """Rows as samples, in the file's order; a context that comes again is moved up to where it came first."""
    samples = []
    counts: dict[str, int] = {}
    for row in rows:
        number = counts[row["task"]] = counts.get(row["task"], -1) + 1
        samples.append(
            Sample(
                sample_id=f"ruler/{row['task']}/data/{number}-{content_hash(row)}",
                context_id=content_hash(row["context"]),
                context=row["context"],
                question=row["question"],
                answer_prefix=row["answer_prefix"],
                max_new_tokens=row["max_new_tokens"],
                references=tuple(row["answer"]),
                subset=row["task"],
                length=length,
            )
        )
    first: dict[str, int] = {}
    for place, sample in enumerate(samples):
        first.setdefault(sample.context_id, place)
    return sorted(samples, key=lambda sample: first[sample.context_id])
