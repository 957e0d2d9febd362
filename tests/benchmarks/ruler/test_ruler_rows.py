"""Rows from a file, and requests that cannot be run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.base import BenchmarkError, Request, Sample, Text
from benchmarks.registry import get

RULER = get("ruler")
ROW: dict[str, Any] = {
    "context": "Some text.\n",
    "question": "What? ",
    "answer_prefix": "Answer:",
    "answer": ["yes", "Yes."],
    "task": "qa_1",
    "max_new_tokens": 32,
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_lines(*lines: dict[str, Any] | str) -> Path:
        path = tmp_path / "rows.jsonl"
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text("\n".join(texts) + "\n", "utf-8")
        return path

    return write_lines


def row(**fields: Any) -> dict[str, Any]:
    return {**ROW, **fields}


def ask(path: Path, text: Text, **fields: Any) -> list[Sample]:
    return RULER.samples(Request(data=path, **fields), text)


def test_all_columns_arrive(write: Callable[..., Path], text: Text) -> None:
    (sample,) = ask(write(row(answer="one answer", more="left out")), text)
    assert (sample.context, sample.question, sample.answer_prefix) == ("Some text.\n", "What? ", "Answer:")
    assert (sample.references, sample.subset, sample.max_new_tokens) == (("one answer",), "qa_1", 32)
    assert sample.length is None


def test_every_task_name_is_taken(write: Callable[..., Path], text: Text) -> None:
    found = ask(write(*(row(task=task, context=task) for task in RULER.subsets)), text)
    assert tuple(s.subset for s in found) == RULER.subsets
    assert len({s.sample_id for s in found}) == 13


def test_samples_of_one_context_are_neighbours(write: Callable[..., Path], text: Text) -> None:
    rows = [row(context=context, question=f"{number}? ") for number, context in enumerate("abacb")]
    found = ask(write(*rows), text)
    assert [s.question for s in found] == ["0? ", "2? ", "1? ", "4? ", "3? "]
    assert [s.context for s in found] == list("aabbc")
    assert len({s.context_id for s in found}) == 3
    # equal rows are samples of their own
    assert len({s.sample_id for s in ask(write(row(), row()), text)}) == 2


def test_subset_and_limit_choose_rows(write: Callable[..., Path], text: Text) -> None:
    tasks = ["vt", "qa_1", "vt", "qa_1", "vt"]
    path = write(*(row(task=task, context=str(number)) for number, task in enumerate(tasks)))
    assert [s.context for s in ask(path, text, limit=2)] == ["0", "1", "2", "3"]
    assert [s.context for s in ask(path, text, subsets=("vt",))] == ["0", "2", "4"]
    assert [s.sample_id for s in ask(path, text, subsets=("vt",), limit=1)] == [ask(path, text)[0].sample_id]
    with pytest.raises(BenchmarkError, match="has no rows of cwe; it has vt, qa_1"):
        ask(path, text, subsets=("cwe",))


def test_a_length_is_a_label(write: Callable[..., Path], text: Text) -> None:
    path = write(ROW)
    assert ask(path, text, lengths=(4096,))[0].length == 4096
    with pytest.raises(BenchmarkError, match="rows of one length"):
        ask(path, text, lengths=(4096, 8192))
