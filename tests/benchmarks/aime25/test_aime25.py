"""The benchmark aime25: where its problems come from, what they become, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import benchmarks.registry
from benchmarks import hub
from benchmarks.base import Request, Sample, Text
from tests.benchmarks.conftest import shared

ROWS = [
    {"id": "first", "question": "What is $6 \\cdot 7$?", "answer": "42"},
    {"id": "second", "question": " How many days has a week? ", "answer": 7},
    {"id": "third", "question": "What is $2^3$?", "answer": "008"},
]


def write(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", [*ROWS[:2], "", ROWS[2]])


def samples(text: Text, **asked: Any) -> list[Sample]:
    return benchmarks.registry.get("aime25").samples(Request(**asked), text)


def test_rows_become_problems_with_the_settings_of_the_benchmark(file: Path, text: Text) -> None:
    found = samples(text, data=file)
    assert [one.sample_id for one in found] == ["aime25/first", "aime25/second", "aime25/third"]
    assert [one.references for one in found] == [("42",), ("7",), ("8",)]
    assert len({one.context_id for one in found}) == 3
    for one, row in zip(found, ROWS, strict=True):
        assert one.context.startswith(str(row["question"]).strip() + "\n\n")
        assert "\\boxed{}" in one.context
        assert (one.question, one.answer_prefix, one.stop, one.length) == ("", "", (), None)
        assert (one.max_new_tokens, one.rollouts) == (32_000, 4)
        assert one.sampling == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert found == samples(text, data=file)
    assert samples(text, data=file, limit=2) == found[:2]
    assert samples(text, data=file, subsets=("aime25",)) == found


def test_all_thirty_problems_of_the_real_file_score_100_with_their_answers(text: Text) -> None:
    benchmark, found = benchmarks.registry.get("aime25"), samples(text, data=shared("aime", "aime25.jsonl"))
    assert len({one.sample_id for one in found}) == 30
    for one in found:
        score = benchmark.score(one, f"\\boxed{{{one.references[0]}}}")
        assert (score.score, score.metrics) == (100, {"answered": 1, "math_verify": 1})
        assert benchmark.score(one, f"So it is {one.references[0]}.").score == 0


def test_rows_of_the_hub(monkeypatch: pytest.MonkeyPatch, text: Text) -> None:
    asked = []

    def rows(name: str, config: str | None, split: str, hint: str) -> list[dict[str, Any]]:
        asked.append((name, config, split, hint))
        return [{"problem": "What is $6 \\cdot 7$?", "answer": "42"}, {"problem": "p", "answer": "7", "id": "own"}]

    monkeypatch.setattr(hub, "rows", rows)
    found = samples(text)
    assert [(one.sample_id, one.references) for one in found] == [("aime25/0", ("42",)), ("aime25/own", ("7",))]
    assert set(asked) == {
        ("math-ai/aime25", None, "test", "give its rows with --data FILE.jsonl, columns id, question, answer")
    }


def test_offline_nothing_is_tried_over_the_network(tmp_path: Path) -> None:
    """In a process of its own, whose sockets fail the test."""
    script = (
        "import socket, sys\n"
        "def refuse(*_): print('a socket was opened'); sys.exit(3)\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from benchmarks import registry\nfrom benchmarks.base import BenchmarkError, Request\n"
        "try:\n    registry.get('aime25').check(Request())\n"
        "except BenchmarkError as error:\n    print(error)\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=Path(__file__).parents[3], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "give its rows with --data FILE.jsonl, columns id, question, answer" in done.stdout
