"""Requests that cannot be run, and names that mean nothing: one message each, in the same words for all benchmarks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.base import BenchmarkError, Metric, Request
from benchmarks.registry import get
from tests.benchmarks.data_rows import ROWS, data_of


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("aime25", {"subsets": ("aime24",)}, "aime25 has no subset 'aime24'; its subsets, nearest first: aime25"),
        ("aime25", {"lengths": (4096, 8192)}, "aime25 takes no --length (got 4096, 8192): its problems have their own"),
        ("fidelity:text", {"lengths": (8,)}, "fidelity:text needs --length 16 or more, got 8"),
        ("fidelity:text", {"data": None}, "fidelity:text needs --data: a text file, a .jsonl file with the column"),
        ("fidelity:needles", {"data": None, "lengths": (255,)}, "needles needs --length 256 or more, got 255"),
        ("longbench", {"subsets": ("hotpot",)}, "no subset 'hotpot'; its subsets, nearest first: hotpotqa, "),
        ("longbench", {"lengths": (4096,)}, "longbench takes no --length (got 4096): its documents have their own"),
        ("longbench", {"subsets": ("trec",)}, "has no rows of trec; it has hotpotqa"),
        ("multi-question", {"subsets": ("q9",)}, "multi-question has no subset 'q9'; its subsets, nearest first: q"),
        ("multi-question", {"subsets": ("q1", "q3")}, "(got --subset q1,q3); give q1,q2"),
        ("multi-question", {"lengths": (256, 512)}, "has finished contexts; give one --length, as their label"),
        ("needles", {}, "needles is generated and takes no --data (got "),
        ("needles", {"data": None, "subsets": ("keys_3",)}, "needles has no subset 'keys_3'; its subsets, nearest"),
        ("needles", {"data": None, "lengths": (1024, 255)}, "needles needs --length 256 or more, got 255"),
        ("ruler", {"subsets": ("niah_multikey",)}, "no subset 'niah_multikey'; its subsets, nearest first: niah_multi"),
        ("ruler", {"subsets": ("cwe",)}, "has no rows of cwe; it has vt"),
        ("ruler", {"lengths": (4096, 8192)}, "has rows of one length, got --length 4096,8192; give one"),
        ("ruler", {"data": None, "lengths": (4096, 1023)}, "ruler needs --length 1024 or more, got 1023"),
        ("ruler", {"data": None, "subsets": ("vt", "niah_single_2")}, "baber/paul_graham_essays (train) is not in the"),
        ("ruler-4k", {"subsets": ("vtt",)}, "ruler-4k has no subset 'vtt'; its subsets, nearest first: vt, "),
        ("ruler-4k", {"subsets": ("fwe",)}, "has no rows of fwe; it has vt"),
        ("ruler-4k", {"lengths": (2048,)}, "ruler-4k has the length 4096, got --length 2048; leave it out"),
    ],
)
def test_requests_that_cannot_be_run(name: str, fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = json.dumps(ROWS.get(name, {})).encode() + b"\n"
    with pytest.raises(BenchmarkError, match=re.escape(message)):
        get(name).check(Request(**{"data": data_of(name, tmp_path, rows), **fields}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"limit": 0}, "--limit must be 1 or more, got 0"),
        *(
            ({"data": Path(path)}, "cannot be read: .*give a path that this user can open")
            for path in ("x" * 400, "\0")
        ),
    ],
    ids=["limit", "too long", "null"],
)
def test_values_that_no_request_can_have(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        Request(**fields)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fidelity:", "fidelity: is not a benchmark; write fidelity:SOURCE or "),
        ("fidelity:fidelity", "fidelity:fidelity is not a benchmark; write fidelity:SOURCE or "),
        ("fidelity:neddles", "unknown benchmark 'neddles'; known, nearest first: needles"),
        ("fidelity:needles:again", "unknown reference 'again'; choose one of answer, text, repeat"),
        ("needles:repeat", "needles:repeat is not a benchmark; needles takes nothing after its name"),
        ("nothing:needles", "unknown benchmark 'nothing'"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str) -> None:
    with pytest.raises(BenchmarkError, match=re.escape(message)):
        get(name)


def test_benchmarks_without_a_format_for_predictions(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="needles has no format for prediction files"):
        list(get("needles").read_predictions(tmp_path))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "", "title": "x"}, "the metric 'x' needs a name and a title"),
        ({"name": "x", "title": ""}, "the metric 'x' needs a name and a title"),
        ({"name": "x", "title": "X", "format": ".1"}, "the metric x has the format '.1'; use a specification such as"),
        ({"name": "x", "title": "X", "format": "999999999.1f"}, "the metric x has the format '999999999.1f'"),
    ],
)
def test_metrics_that_cannot_be_shown(fields: dict[str, str], message: str) -> None:
    with pytest.raises(BenchmarkError, match=re.escape(message)):
        Metric(**fields)  # type: ignore[arg-type]
