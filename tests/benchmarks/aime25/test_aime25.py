"""The benchmark aime25: where its problems come from, what they become, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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


def samples(text: Text, **asked: Any) -> list[Sample]:
    return benchmarks.registry.get("aime25").samples(Request(**asked), text)


def test_rows_become_problems_with_the_settings_of_the_benchmark(tmp_path: Path, text: Text) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)), "utf-8")
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
    rows = Mock(return_value=[{"problem": "6 times 7?", "answer": "42"}, {"problem": "p", "answer": "7", "id": "own"}])
    monkeypatch.setattr(hub, "rows", rows)
    found = samples(text)
    assert [(one.sample_id, one.references) for one in found] == [("aime25/0", ("42",)), ("aime25/own", ("7",))]
    hint = "give its rows with --data FILE.jsonl, columns id, question, answer"
    rows.assert_called_with("math-ai/aime25", None, "test", hint)


def test_offline_nothing_is_tried_over_the_network(tmp_path: Path) -> None:
    """In a process of its own, whose sockets fail the test."""
    script = """
import socket, sys
def refuse(*_): sys.exit("a socket was opened")
socket.socket.connect = socket.getaddrinfo = refuse
from benchmarks import registry
from benchmarks.base import Request
registry.get("aime25").check(Request())
"""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd=root, capture_output=True, text=True)
    assert "BenchmarkError: the data set math-ai/aime25 (test) is not in the cache" in done.stderr, done.stderr
