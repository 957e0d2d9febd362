"""Finished rows: from a file, from the hub's published sets, and their score."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from benchmarks import hub
from benchmarks.base import BenchmarkError, Request, Sample, Text
from benchmarks.registry import get
from tests.benchmarks.data_rows import ROWS

ROW: dict[str, Any] = {**ROWS["ruler"], "answer": ["yes", "Yes."], "task": "qa_1", "max_new_tokens": 32}


def row(**fields: Any) -> dict[str, Any]:
    return {**ROW, **fields}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pandas.DataFrame(list(rows)).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


@pytest.fixture
def ask(tmp_path: Path, text: Text) -> Callable[..., list[Sample]]:
    """Samples of ruler from a file with these rows."""

    def samples(*rows: dict[str, Any], **fields: Any) -> list[Sample]:
        return get("ruler").samples(Request(data=write(tmp_path / "rows.jsonl", *rows), **fields), text)

    return samples


def test_columns_become_the_sample(ask: Callable[..., list[Sample]]) -> None:
    (sample,) = ask(row(answer="one answer", more="left out", answer_prefix="Answer:"))
    assert (sample.context, sample.question, sample.answer_prefix) == ("c", "q", "Answer:")
    assert (sample.references, sample.subset, sample.max_new_tokens) == (("one answer",), "qa_1", 32)
    assert sample.length is None and ask(ROW, lengths=(512,))[0].length == 512  # a label alone
    tasks = get("ruler").subsets
    assert tuple(one.subset for one in ask(*(row(task=task, context=task) for task in tasks))) == tasks


def test_samples_of_one_context_are_neighbours(ask: Callable[..., list[Sample]]) -> None:
    found = ask(*(row(context=context, question=f"{number}? ") for number, context in enumerate("abacb")))
    assert [s.question for s in found] == ["0? ", "2? ", "1? ", "4? ", "3? "]
    assert [s.context for s in found] == list("aabbc") and len({s.context_id for s in found}) == 3
    assert len({s.sample_id for s in ask(row(), row())}) == 2  # equal rows are samples of their own


@pytest.mark.parametrize("name", ["ruler", "ruler-4k"])
def test_subset_and_limit_choose_rows(name: str, tmp_path: Path, text: Text) -> None:
    tasks = ["vt", "qa_1", "vt", "qa_1", "vt"]
    path = write(tmp_path / "rows.jsonl", *(row(task=task, context=str(n)) for n, task in enumerate(tasks)))

    def contexts(**fields: Any) -> list[str]:
        return [s.context for s in get(name).samples(Request(data=path, **fields), text)]

    assert contexts(limit=2) == ["0", "1", "2", "3"] and contexts(lengths=(4096,)) == list("01234")
    assert contexts(subsets=("vt",)) == ["0", "2", "4"] and contexts(subsets=("vt",), limit=1) == ["0"]


@pytest.mark.parametrize(("name", "length"), [("ruler-4k", 4096), ("ruler-8k", 8192), ("ruler-16k", 16384)])
def test_published_rows_of_the_hub(name: str, length: int, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    rows = [row(), row(task="vt", max_new_tokens=30, answer=["AB", "CD"]), row(question="Who? ", answer=["me"])]
    monkeypatch.setattr(hub, "rows", lambda *args: asked.append(args) or rows)
    benchmark = get(name)
    assert benchmark.default_lengths == (length,)
    benchmark.check(Request())
    found = benchmark.samples(Request(), text)
    assert {args[:3] for args in asked} == {("simonjegou/ruler", str(length), "test")}
    assert all(name in asked[0][3] for name in ("--data", "context", "max_new_tokens"))
    assert [(s.subset, s.question, s.length, s.max_new_tokens) for s in found] == [
        ("qa_1", "q", length, 32),
        ("vt", "q", length, 30),
        ("qa_1", "Who? ", length, 32),
    ]
    assert len({s.context_id for s in found}) == 1  # equal contexts share a prefill, whatever their subset
    assert len({s.sample_id for s in found}) == 3 and all(s.sample_id.startswith(f"{name}/") for s in found)
    assert benchmark.score(found[0], "YES").score == 100.0 and benchmark.score(found[1], "ab").score == 50.0
    rows[1:] = [{"context": "only"}]
    with pytest.raises(BenchmarkError, match="simonjegou/ruler, row 2: no column question, "):
        benchmark.check(Request())


@pytest.mark.parametrize("name", ["rows.jsonl", "test.parquet"])
def test_local_copies_of_published_rows(name: str, tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "rows", lambda *args: pytest.fail("the hub was asked"))
    path = write(tmp_path / name, row(), row(task="vt"))
    write(tmp_path / "more" / "4096" / name, row(task="cwe"))
    write(tmp_path / "more" / "8192" / name, row(task="fwe"))

    def subsets(data: Path, of: str = "ruler-4k") -> list[str]:
        get(of).check(Request(data=data))
        return [s.subset for s in get(of).samples(Request(data=data), text)]

    assert subsets(path) == subsets(tmp_path) == ["qa_1", "vt"]
    # a copy of the data set has all lengths
    assert (subsets(tmp_path / "more"), subsets(tmp_path / "more", "ruler-8k")) == (["cwe"], ["fwe"])


@pytest.mark.parametrize(
    ("subset", "references", "prediction", "expected"),
    [
        ("niah_single_1", ("1234567",), " is 1234567.", 100.0),
        ("niah_single_1", ("1234567",), "1234568", 0.0),
        ("niah_multivalue", ("11", "22", "33", "44"), "11, 33 and 44", 75.0),
        ("vt", ("ABCDE", "FGHIJ", "KLMNO", "PQRST", "UVWXY"), "abcde FGHIJ", 40.0),
        # every reference counts in cwe, and one may be inside another word
        ("cwe", ("art", "bus", "cup", "dog"), "1. Party 2. BUS", 50.0),
        # control characters are line ends, not nothing: no word arises from two halves
        ("fwe", ("abcdef",), "abc\tdef", 0.0),
        ("fwe", ("abc\ndef",), "\x01abc\x0bdef\x1f", 100.0),
        ("fwe", ("abcdef",), "", 0.0),
        # one answer is enough in qa; lm-eval's formula gives 66.7 for the first one
        ("qa_1", ("Palate", "Palate", "corps"), "palate", 100.0),
        ("qa_1", ("Palate", "Palate", "corps"), "the Corps", 100.0),
        ("qa_2", ("yes", "no"), "maybe", 0.0),
    ],
)
def test_scores_by_hand(subset: str, references: tuple[str, ...], prediction: str, expected: float) -> None:
    sample = Sample("id", "ctx", "context", "question", "", 32, references, subset)
    assert get("ruler").score(sample, prediction).score == expected


WORDS = Text(lambda text: [0] * len(text.split()), lambda ids: "", "words")


@pytest.mark.parametrize(
    ("name", "lengths", "rows", "message"),
    [
        ("ruler-16k", (), {"vt": (505,)}, "ruler-16k has 16,384 tokens, but ruler-16k/vt/data/0-"),
        ("ruler-8k", (), {"vt": (4096,)}, "has 4,096 with this model's tokenizer, answer limit included; give rows"),
        ("ruler-4k", (), {"vt": (4096, 8192, 4096)}, "has 8,192 with this model's tokenizer"),
        ("ruler-4k", (), {"vt": (4096,), "cwe": (2048, 4096)}, "(the rows have 2,048 to 4,096)"),
        ("fidelity:ruler-4k", (), {"vt": (2048,)}, "ruler-4k has 4,096 tokens"),
        ("ruler", (8192,), {"vt": (4096,)}, "--length says 8,192 tokens, but ruler/vt/data/0-"),
        ("ruler", (512,), {"vt": (4096,)}, "; give the length that they have, or leave --length out"),
        # what the generators' coarse steps and other tokenizers make of 4,096
        ("ruler-4k", (), {"vt": (3499, 4539), "qa_1": (2254,)}, None),
        ("ruler", (4096,), {"vt": (3499, 4539), "qa_2": (2254,)}, None),
        ("ruler", (), {"vt": (505, 9000)}, None),
    ],
)
def test_rows_of_another_length(
    name: str, lengths: tuple[int, ...], rows: dict[str, tuple[int, ...]], message: str | None, tmp_path: Path
) -> None:
    """``rows``: the tokens of each, with its answer limit, in words."""
    rest = 1 + ROW["max_new_tokens"]
    made = [row(task=task, context="w " * (tokens - rest)) for task in rows for tokens in rows[task]]
    benchmark, request = get(name), Request(data=write(tmp_path / "rows.jsonl", *made), lengths=lengths)

    def resolve() -> None:
        benchmark.check_samples(request, benchmark.samples(request, WORDS), WORDS)

    if message is None:
        resolve()
    else:
        with pytest.raises(BenchmarkError, match=re.escape(message)):
            resolve()
