"""Names for several subsets: groups, and what several names begin with; and what is missing of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.base import BenchmarkError, Request, Text
from benchmarks.registry import get
from tests.benchmarks import made_up
from tests.benchmarks.data_rows import ROWS, data_of


@pytest.mark.parametrize(
    ("name", "asked", "count"),
    [
        ("ruler", "vt", 1),
        ("ruler", "niah", 8),
        ("ruler", "niah_multikey", 3),
        ("ruler", "qa", 2),  # a group
        ("ruler", "tracing", 1),
        ("ruler", "niah_multiq", 0),  # begins one name alone, as a typing error would
        ("ruler", "iah", 0),
        ("ruler-4k", "niah_single", 3),
        ("multi-question", "q", 5),
        ("longbench", "passage", 3),
        ("longbench_e", "trec", 3),
        ("needles", "keys", 4),
    ],
)
def test_a_name_for_several_subsets(name: str, asked: str, count: int) -> None:
    benchmark = get(name)
    found = benchmark.subsets_named(asked)
    assert len(set(found)) == count and set(found) <= set(benchmark.subsets)
    assert asked in benchmark.groups or all(subset.startswith(asked) for subset in found)


def request_of(name: str, asked: str, data: Path | None) -> Request:
    """What a run requests with ``--subset ASKED``."""
    found = get(name).subsets_named(asked)
    generated = name.endswith("ruler") and (data is None or data.is_dir())
    return Request((1024,) if generated else (), found, 1, data, optional=frozenset(found) - {asked})


SELF_CONTAINED = ["niah_single_1", "niah_multikey_2", "niah_multikey_3"]


@pytest.mark.parametrize(
    ("name", "asked", "rows_of", "run"),
    [
        ("ruler", "retrieval", None, SELF_CONTAINED),
        ("fidelity:ruler", "retrieval", None, SELF_CONTAINED),
        ("ruler", "niah", "folder", SELF_CONTAINED),
        ("ruler", "niah", "niah_single_2", ["niah_single_2"]),
        ("ruler-4k", "niah", "niah_single_1", ["niah_single_1"]),
        ("longbench", "single_doc_qa", "qasper", ["qasper"]),
        ("longbench_e", "single_doc_qa", "qasper", ["qasper:0-4k"]),
    ],
)
def test_what_is_missing_of_several_is_left_out_and_named(
    name: str, asked: str, rows_of: str | None, run: list[str], tmp_path: Path, text: Text
) -> None:
    data = None
    if rows_of == "folder":
        data = made_up.write(tmp_path)
        shutil.rmtree(data / "paul_graham")
    elif rows_of is not None:
        data = data_of(name, tmp_path, json.dumps({**ROWS[name], "task": rows_of}).encode(), rows_of)
    benchmark, request = get(name), request_of(name, asked, data)
    benchmark.check(request)
    assert [sample.subset for sample in benchmark.samples(request, text)] == run
    (note,) = benchmark.notes(request)
    left_out = note.partition(": ")[2]
    missing = [
        subset for subset in request.subsets if subset.partition(":")[0] not in [one.partition(":")[0] for one in run]
    ]
    assert missing and [subset for subset in request.subsets if subset in left_out] == missing


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("ruler", "qa", "rajpurkar/squad_v2"),
        ("ruler-4k", "qa", "has no rows of qa_1; it has vt"),
        ("longbench", "code", "has no rows of lcc, repobench-p; it has hotpotqa"),
    ],
)
def test_where_all_of_several_are_missing_nothing_runs(name: str, asked: str, message: str, tmp_path: Path) -> None:
    data = None if name == "ruler" else data_of(name, tmp_path, json.dumps(ROWS[name]).encode())
    with pytest.raises(BenchmarkError, match=message):
        get(name).check(request_of(name, asked, data))


def test_a_subset_that_is_named_itself_must_be_there() -> None:
    found = get("ruler").subsets_named("retrieval")
    with pytest.raises(BenchmarkError, match="baber/paul_graham_essays"):
        get("ruler").check(Request(subsets=found, optional=frozenset(found) - {"niah_single_2"}))
