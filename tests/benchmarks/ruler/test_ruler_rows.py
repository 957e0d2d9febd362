"""Rows from a file, and requests that cannot be run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.base import BenchmarkError, Request, Sample, Text
from benchmarks.registry import get
from benchmarks.ruler import benchmark as ruler

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


def test_seven_subsets_need_data() -> None:
    assert RULER.needs_data == (
        "niah_single_2",
        "niah_single_3",
        "niah_multikey_1",
        "niah_multivalue",
        "niah_multiquery",
        "qa_1",
        "qa_2",
    )
    assert len(RULER.subsets) == 13


def test_words_that_run_out_are_followed_by_pairs(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.ruler.tasks import cwe, words

    few = words.lists()._replace(all=words.lists().all[:60])
    monkeypatch.setattr(cwe, "lists", lambda: few)
    (sample,) = ruler.generate("cwe", 4096, 0, 1, text)
    listed = Counter(re.findall(r"\d+\. (.*?)(?= \d+\. |$)", sample.context.split("\n")[-2]))
    single = {word for word in listed if word in few.all}
    pairs = listed.keys() - single
    assert len(single) == 60 and len(pairs) > 20
    for pair in pairs:
        halves = [(pair[:place], pair[place + 1 :]) for place, sign in enumerate(pair) if sign == "-"]
        assert any(one in words.lists().adjectives and two in words.lists().nouns for one, two in halves)
    assert {listed[word] for word in sample.references} == {30} and {listed[pair] for pair in pairs} == {3}


def test_tokenizers_that_cannot_work() -> None:
    characters = Text(lambda s: [ord(c) for c in s], lambda ids: "".join(map(chr, ids)), "characters")
    with pytest.raises(BenchmarkError, match="worked example of ruler vt: its shortest prompt takes"):
        ruler.generate("vt", 1024, 0, 1, characters)
    with pytest.raises(BenchmarkError, match="the prompt cannot be filled"):
        ruler.generate("niah_single_1", 1024, 0, 1, Text(lambda s: [], lambda ids: "", "none"))
