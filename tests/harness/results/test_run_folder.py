"""The files of a run by themselves: what a line may hold, what is read back, what is mended."""

from __future__ import annotations

import gzip
import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.config.variants import Variant
from harness.errors import HarnessError
from harness.files import write_atomically
from harness.results.jsonl import MOST_LINE
from harness.results.run_folder import RunFolder, append_line
from harness.results.schema import SCHEMA_VERSION, Line, RunRecord, Summary
from harness.results.score_histograms import FILE, Histogram, HistogramWriter, read_histograms
from tests.harness.made_runs import RUN

HISTOGRAM: dict[str, Any] = {"sample_id": "s0", "method": "m", "options": "{}", "window": 0, "sinks": 0}
HISTOGRAM |= {"low": -1.0, "high": 1.0, "counts": [1], "cached": 4}


def line(number: int = 0, **more: Any) -> Line:
    given: dict[str, Any] = {
        "sample_id": f"s{number}",
        "context_id": "c",
        "benchmark": "toy",
        "subset": "red",
        "length": None,
        "status": "ok",
        "context_tokens": 9,
        "prediction": "ä \u2028 \n tab\t",
        **Variant("knorm", "head", "removed", 0.5).fields(),
    }
    return Line(**{**given, **more})


def record(**more: Any) -> RunRecord:
    """A run.json with one variant."""
    variant = Variant("knorm", "head", "removed", 0.5).fields()
    names = {"model": "m", "benchmarks": [], "lengths": [], "subsets": [], "limits": {}, "device": "cpu", "dtype": "x"}
    configuration = {**names, "variants": [variant], "data_hash": "0" * 16, "seed": 0}
    return RunRecord.model_validate({**RUN, "configuration": configuration, **more})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    found.start(record(), [])
    return found


def fill(folder: RunFolder, lines: list[Line]) -> Path:
    with folder.append("samples.jsonl") as file:
        for one in lines:
            append_line(file, one.model_dump())
    return folder.path / "samples.jsonl"


def test_lines_come_back_as_they_were(folder: RunFolder) -> None:
    lines = [line(0), line(1, score=100.0, metrics={"x": 0.1}), line(2, status="oom", reason="full")]
    path = fill(folder, lines)
    assert folder.lines() == lines
    assert len(path.read_text("utf-8").split("\n")) == 4


@pytest.mark.parametrize("level", [math.inf, -math.inf])
def test_an_infinite_level_is_written_as_text_and_read_as_a_number(folder: RunFolder, level: float) -> None:
    path = fill(folder, [line(**Variant("knorm", "threshold", "threshold", level).fields())])
    assert json.loads(path.read_text("utf-8"))["level"] == str(level)
    assert folder.lines()[0].level == level


def test_a_line_has_the_published_fields() -> None:
    wanted = """variant method budget level_kind level phase window sinks positions engine attention_during_prefill
    kv_bits query_mode thinking options sample_id context_id benchmark subset length rollout prediction score metrics
    status finish_reason prompt_cut context_tokens generated_tokens cached_pairs kept_pairs removed_context
    removed_total removed_time_mean physical_bytes"""
    assert set(wanted.split()) <= set(line().model_dump())


@pytest.mark.parametrize(
    "bad", [{"score": 101}, {"score": -1}, {"score": math.nan}, {"status": "fine"}, {"phase": "later"}, {"unknown": 1}]
)
def test_a_line_that_breaks_the_schema_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        line(**bad)


def test_nan_is_never_written(folder: RunFolder) -> None:
    with folder.append("samples.jsonl") as file, pytest.raises(ValueError, match="Out of range float"):
        append_line(file, {"metrics": {"x": math.nan}})
    assert folder.lines() == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("broken", [b"{half", b"", b"\xff\xfe", b'{"variant": 3}', b"null"])
def test_a_broken_line_is_named_by_file_and_number(folder: RunFolder, packed: bool, broken: bytes) -> None:
    path = fill(folder, [line(number) for number in range(4)])
    rows = path.read_bytes().split(b"\n")
    rows[2] = broken
    path.write_bytes(b"\n".join(rows))
    if packed:
        pack(path)
    with pytest.raises(HarnessError, match=r"samples\.jsonl(\.gz)?, line 3: "):
        folder.lines()


def test_a_last_line_without_its_end_is_passed_over(folder: RunFolder) -> None:
    path = fill(folder, [line(0), line(1)])
    whole = path.read_bytes()
    for cut in (1, 40, len(whole) // 2 - 1):
        path.write_bytes(whole[:-cut])
        assert [one.sample_id for one in folder.lines()] == ["s0", "s1"][: 2 if cut == 1 else 1]


@pytest.mark.parametrize("cut", [1, 17])
def test_mending_cuts_to_whole_lines_so_that_appending_goes_on(folder: RunFolder, cut: int) -> None:
    path = fill(folder, [line(0), line(1)])
    path.write_bytes(path.read_bytes()[:-cut])
    folder.mend()
    fill(folder, [line(1), line(2)])
    assert [one.sample_id for one in folder.lines()] == ["s0", "s1", "s2"]


def test_mending_whole_files_changes_nothing(folder: RunFolder) -> None:
    path = fill(folder, [line(0), line(1)])
    before = path.read_bytes()
    folder.mend()
    assert path.read_bytes() == before


def pack(path: Path) -> Path:
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def test_packed_lines_are_read_and_unpacked_before_more_are_appended(folder: RunFolder) -> None:
    path = fill(folder, [line(0), line(1)])
    plain = path.read_bytes()
    packed = pack(path)
    assert folder.lines() == [line(0), line(1)]
    folder.mend()
    assert not packed.exists()
    assert path.read_bytes() == plain


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"no gzip at all", lambda data: data[:30] + b"?"]
)
def test_a_damaged_packed_file_is_named(folder: RunFolder, damage: Any) -> None:
    packed = pack(fill(folder, [line(number) for number in range(9)]))
    packed.write_bytes(damage(packed.read_bytes()))
    with pytest.raises(HarnessError, match=r"samples\.jsonl\.gz cannot be read"):
        folder.lines()


def test_starting_over_drops_what_was_there(folder: RunFolder) -> None:
    pack(fill(folder, [line(0)]))
    with folder.append("histograms.jsonl") as file:
        append_line(file, HISTOGRAM)
    folder.finish(Summary(cells=[]))
    folder.start(record(hardware="new"), [])
    assert sorted(path.name for path in folder.path.iterdir()) == ["items.jsonl", "run.json"]
    assert folder.run().hardware == "new"
    assert (folder.lines(), folder.summary()) == ([], None)


def test_histograms_are_written_once_each(folder: RunFolder) -> None:
    one = Histogram(**HISTOGRAM)
    found = [one, one.model_copy(update={"window": 4}), one.model_copy(update={"sinks": "prefix"})]
    for _ in range(2):
        with closing(HistogramWriter(folder)) as writer:
            for histogram in (*found, one):
                writer.write(histogram)
    assert read_histograms(folder.path / FILE) == found


@pytest.mark.parametrize("text", ["{half\n", "{}\n", "[1]\n"])
def test_damaged_histograms_are_named(folder: RunFolder, text: str) -> None:
    (folder.path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(HarnessError, match=r"histograms\.jsonl, line 1: .*--force"):
        HistogramWriter(folder)


@pytest.mark.parametrize("run", ['{"schema_version": 2}', "{}", "[]", '{"schema_version": "1"}'])
def test_another_schema_version_is_refused(folder: RunFolder, run: str) -> None:
    (folder.path / "run.json").write_text(run, encoding="utf-8")
    with pytest.raises(HarnessError, match=f"schema_version .*; this release reads {SCHEMA_VERSION}"):
        folder.run()


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_a_damaged_file_says_what_to_do(folder: RunFolder, name: str) -> None:
    (folder.path / name).write_text("{half", encoding="utf-8")
    read = folder.run if name == "run.json" else folder.summary
    with pytest.raises(HarnessError, match=rf"{name} .*(--force|delete it)"):
        read()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text("utf-8") == "old"


@pytest.mark.parametrize("name", ["samples.jsonl", "samples.jsonl.gz"])
def test_a_line_without_an_end_is_refused_before_all_of_it_is_joined(folder: RunFolder, name: str) -> None:
    fill(folder, [line(0)]).unlink()
    row = json.dumps(line(1).model_dump()).encode() + b"\n"
    data = row + b" " * (3 * MOST_LINE)
    (folder.path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(HarnessError, match=rf"{name}, line 2 has 5,\d\d\d,\d\d\d bytes, of at most 4,194,304"):
        folder.count()
    with pytest.raises(HarnessError, match=rf"{name}, line 2: has 12,582,912 bytes, of at most 4,194,304"):
        folder.lines()
