"""Finished RULER rows, with ``context, question, answer_prefix, answer, task, max_new_tokens``, and their score."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.base import BenchmarkError, Request, Sample, Score, content_hash, left_out
from benchmarks.data_files import DataPath, are_texts, check_columns, count_of, kind, text_of, wrong_value

COLUMNS = ("context", "question", "answer_prefix", "answer", "task", "max_new_tokens")
EXPECTED = f"a .jsonl or .parquet file with the columns {', '.join(COLUMNS)}"
#: subsets where one right answer of several is enough
ANY_ANSWER = ("qa_1", "qa_2")
#: tokens by which NVIDIA's scripts, which fill in coarse steps, leave rows short of their length: ten documents, or
#: 500 words of the essays
DOCUMENTS_SLACK, SLACK = 2048, 700


def slack(subset: str) -> int:
    """By how many tokens a finished row may be shorter than its length."""
    return DOCUMENTS_SLACK if subset in ANY_ANSWER else SLACK


def read_rows(path: Path, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a JSON-lines or parquet file, ``answer`` as a list, other columns left out.

    Raises :class:`BenchmarkError` with the file and the line number on the first row that is broken, lacks a column,
    has a value of the wrong type, or names a task that is not in ``tasks``.
    """
    given = DataPath(path, EXPECTED)
    found = given.parquet() if kind(path) == ".parquet" else given.json_lines()
    rows = [checked(row, place, tasks) for place, row in found]
    if not rows:
        raise BenchmarkError(f"--data {path} has no rows; its lines need the columns {', '.join(COLUMNS)}")
    return rows


def checked(row: dict[str, Any], place: str, tasks: Sequence[str]) -> dict[str, Any]:
    """One row, ``answer`` as a list, other columns left out; :class:`BenchmarkError` with ``place`` on a faulty one."""
    check_columns(row, COLUMNS, place)
    text_of(row, "context", place, blank=False)
    for name in ("question", "answer_prefix", "task"):
        text_of(row, name, place)
    if row["task"] not in tasks:
        raise BenchmarkError(f"{place}: unknown task {row['task']!r}; known: {', '.join(tasks)}")
    answers = [row["answer"]] if isinstance(row["answer"], str) else row["answer"]
    if not are_texts(answers) or not answers or not all(answer.strip() for answer in answers):
        raise wrong_value(place, "answer", "a text or a list of texts, none of them empty", row["answer"])
    count_of(row, "max_new_tokens", place, 1)
    return {**{name: row[name] for name in COLUMNS}, "answer": answers}


def choose(rows: list[dict[str, Any]], tasks: Sequence[str], request: Request, place: str) -> list[dict[str, Any]]:
    """The first ``limit`` rows of each requested task (by default of every task that has rows), in the file's order."""
    present = [name for name in tasks if any(row["task"] == name for row in rows)]
    wanted = [name for name in request.subsets if name in present or name not in request.optional]
    for name in wanted or request.subsets:
        if name not in present:
            raise BenchmarkError(f"{place} has no rows of {name}; it has {', '.join(present)}")
    by_task = {name: [row for row in rows if row["task"] == name] for name in wanted or present}
    chosen = {id(row) for task_rows in by_task.values() for row in task_rows[: request.limit]}
    return [row for row in rows if id(row) in chosen]


def without_rows(rows: list[dict[str, Any]], request: Request, place: str) -> tuple[str, ...]:
    """The note about requested subsets that have no rows, if there are any."""
    present = {row["task"] for row in rows}
    lacking = [name for name in request.subsets if name in request.optional and name not in present]
    return left_out(request, lacking, place)


def as_samples(rows: list[dict[str, Any]], length: int | None, source: str = "ruler") -> list[Sample]:
    """Rows as samples, in the file's order; samples of one context are moved up to its first one.

    source   the benchmark, for the ids
    """
    samples = []
    counts: dict[str, int] = {}
    for row in rows:
        number = counts[row["task"]] = counts.get(row["task"], -1) + 1
        samples.append(
            Sample(
                sample_id=f"{source}/{row['task']}/data/{number}-{content_hash(row)}",
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


def score(sample: Sample, prediction: str) -> Score:
    """The share of the references found in the answer x 100; for questions (qa) 100 if any is found.

    Upper and lower case count as the same, and control characters as line ends.
    """
    answer = re.sub(r"[\x00-\x1f]", "\n", prediction.strip()).strip().lower()
    found = [reference.lower() in answer for reference in sample.references]
    if sample.subset in ANY_ANSWER:
        return Score(100.0 if any(found) else 0.0)
    return Score(100.0 * sum(found) / len(found))
