"""The frozen sets: rows from the hub or a local copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hub
from benchmarks.base import BenchmarkError, Request, Text
from benchmarks.registry import get

RULER_4K = get("ruler-4k")
ROW: dict[str, Any] = {
    "context": "Some text.\n",
    "question": "What? ",
    "answer_prefix": "Answer:",
    "answer": ["yes", "Yes."],
    "task": "qa_1",
    "max_new_tokens": 32,
}


def row(**fields: Any) -> dict[str, Any]:
    return {**ROW, **fields}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pandas

        pandas.DataFrame(list(rows)).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Any, ...]]]:
    """The hub serves these rows; returns what it is asked for."""

    def serve(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
        asked: list[tuple[Any, ...]] = []
        monkeypatch.setattr(hub, "rows", lambda *args: asked.append(args) or list(rows))
        return asked

    return serve


@pytest.mark.parametrize(("name", "length"), [("ruler-4k", 4096), ("ruler-8k", 8192), ("ruler-16k", 16384)])
def test_hub_rows(name: str, length: int, served: Callable[..., list[tuple[Any, ...]]], text: Text) -> None:
    asked = served(row(), row(task="vt", max_new_tokens=30, answer=["AB", "CD"]), row(question="Who? ", answer=["me"]))
    benchmark = get(name)
    assert benchmark.default_lengths == (length,) and len(benchmark.subsets) == 13
    benchmark.check(Request())
    found = benchmark.samples(Request(), text)
    assert {args[:3] for args in asked} == {("simonjegou/ruler", str(length), "test")}
    assert all(name in asked[0][3] for name in ("--data", "context", "max_new_tokens"))
    assert [(s.subset, s.question, s.length, s.max_new_tokens) for s in found] == [
        ("qa_1", "What? ", length, 32),
        ("vt", "What? ", length, 30),
        ("qa_1", "Who? ", length, 32),
    ]
    # equal contexts share a prefill, whatever their subset
    assert len({s.context_id for s in found}) == 1
    assert len({s.sample_id for s in found}) == 3 and all(s.sample_id.startswith(f"{name}/") for s in found)
    assert benchmark.score(found[0], "YES").score == 100.0 and benchmark.score(found[1], "ab").score == 50.0


def test_subset_limit_and_length(served: Callable[..., list[tuple[Any, ...]]], text: Text) -> None:
    served(*(row(task=task, context=str(n)) for n, task in enumerate(["vt", "cwe", "vt", "cwe", "vt"])))
    assert [s.context for s in RULER_4K.samples(Request(limit=1), text)] == ["0", "1"]
    assert [s.context for s in RULER_4K.samples(Request(subsets=("vt",), limit=2), text)] == ["0", "2"]
    assert len(RULER_4K.samples(Request(lengths=(4096,)), text)) == 5


def test_broken_hub_row_is_named(served: Callable[..., list[tuple[Any, ...]]]) -> None:
    served(row(), {"context": "only"})
    with pytest.raises(BenchmarkError, match="simonjegou/ruler, row 2: no column question, "):
        RULER_4K.check(Request())


@pytest.mark.parametrize("name", ["rows.jsonl", "test.parquet"])
def test_local_copies(name: str, tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "rows", lambda *args: pytest.fail("the hub was asked"))
    path = write(tmp_path / name, row(), row(task="vt"))
    write(tmp_path / "more" / "4096" / name, row(task="cwe"))
    write(tmp_path / "more" / "8192" / name, row(task="fwe"))

    def subsets(data: Path, of: str = "ruler-4k") -> list[str]:
        get(of).check(Request(data=data))
        return [s.subset for s in get(of).samples(Request(data=data), text)]

    assert subsets(path) == subsets(tmp_path) == ["qa_1", "vt"]
    # a copy of the data set holds all lengths
    assert (subsets(tmp_path / "more"), subsets(tmp_path / "more", "ruler-8k")) == (["cwe"], ["fwe"])
