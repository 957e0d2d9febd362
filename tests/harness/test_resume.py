"""What a second start does: a complete run is read, an incomplete one goes on where it ended, or starts over."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest

from harness.evaluation import execute, provenance
from harness.results.run_folder import RunFolder
from tests.harness.driving import QUICK, Runs, contents, shorten

pytestmark = pytest.mark.usefixtures("toys")


def test_a_complete_run_prints_its_table_without_the_model(runs: Runs, unloaded: Callable[[], None]) -> None:
    first = runs(*QUICK)
    before = contents(runs.folder)
    unloaded()
    for more in ((), ("--resume",)):
        again = runs(*QUICK, *more)
        assert (again.code, again.err) == (0, "")
        assert again.out == first.out.replace("(complete)", "(was complete already)")
    assert contents(runs.folder) == before


def test_a_missing_summary_is_rebuilt_without_the_model(runs: Runs, unloaded: Callable[[], None]) -> None:
    runs(*QUICK)
    before = contents(runs.folder)
    (runs.folder / "summary.json").unlink()
    unloaded()
    assert runs(*QUICK).code == 0
    assert contents(runs.folder) == before


def test_a_packed_run_is_read(runs: Runs, unloaded: Callable[[], None]) -> None:
    first = runs(*QUICK)
    path = runs.folder / "samples.jsonl"
    (runs.folder / "samples.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    unloaded()
    assert runs(*QUICK).out == first.out.replace("(complete)", "(was complete already)")


@pytest.mark.parametrize("lines", [0, 7])
def test_an_incomplete_run_needs_a_word(runs: Runs, unloaded: Callable[[], None], lines: int) -> None:
    runs(*QUICK)
    shorten(runs, lines)
    before = contents(runs.folder)
    unloaded()
    refused = runs(*QUICK)
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert f"incomplete run ({lines} of 12 lines); add --resume to go on or --force to start over" in refused.err
    assert (refused.out, contents(runs.folder)) == ("", before)


def test_a_half_written_last_line_counts_as_incomplete(runs: Runs) -> None:
    runs(*QUICK)
    path = runs.folder / "samples.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    before = contents(runs.folder)
    refused = runs(*QUICK)
    assert (refused.code, "11 of 12 lines" in refused.err) == (2, True)
    assert contents(runs.folder) == before


@pytest.mark.parametrize(
    ("lines", "tail", "packed"), [(0, 0, False), (2, 25, False), (3, 0, True), (7, 25, True), (11, 25, False)]
)
def test_resuming_gives_what_an_uninterrupted_run_gives(runs: Runs, lines: int, tail: int, packed: bool) -> None:
    runs(*QUICK)
    before = contents(runs.folder)
    shorten(runs, lines)
    shorten(runs, -(-lines // 6), "histograms.jsonl")  # a context's comes before its first line
    path = runs.folder / "samples.jsonl"
    for name in ("samples.jsonl", "histograms.jsonl"):
        whole = (runs.folder / name).read_bytes()
        (runs.folder / name).write_bytes(whole + before[name][len(whole) : len(whole) + tail])
    if packed:
        (runs.folder / "samples.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert runs(*QUICK, "--resume").code == 0
    assert contents(runs.folder) == before


def test_resuming_where_nothing_is_starts(runs: Runs) -> None:
    assert runs(*QUICK, "--resume").code == 0
    assert len(runs.rows()) == 12


def test_lines_without_memory_stay_as_they_are(runs: Runs) -> None:
    flags = (
        *QUICK[:2],
        "--method",
        "broken,knorm",
        "--removed",
        "0.5",
        "--option",
        "broken.how=memory",
        "--limit",
        "2",
    )
    runs(*flags)
    before = contents(runs.folder)
    shorten(runs, 6)
    assert runs(*flags, "--resume").code == 0
    assert contents(runs.folder) == before
    assert [row["status"] for row in runs.rows()][:3] == ["ok", "oom", "ok"]


def test_force_starts_over(runs: Runs) -> None:
    runs(*QUICK)
    before = contents(runs.folder)
    rows = runs.rows()
    rows[0]["prediction"] = "not what the model said"
    (runs.folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (runs.folder / "samples.jsonl.gz").write_bytes(gzip.compress((runs.folder / "samples.jsonl").read_bytes()))
    assert runs(*QUICK, "--force").code == 0
    assert contents(runs.folder) == before


def test_a_broken_line_in_the_middle_is_named(runs: Runs) -> None:
    runs(*QUICK)
    path = runs.folder / "samples.jsonl"
    rows = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([*rows[:4], rows[4][:50] + "\n", *rows[5:]]), encoding="utf-8")
    before = contents(runs.folder)
    for more in ((), ("--resume",)):
        refused = runs(*QUICK, *more)
        assert (refused.code, f"error: {path}, line 5: " in refused.err) == (2, True)
    assert contents(runs.folder) == before


def test_doubled_lines_are_refused(runs: Runs) -> None:
    runs(*QUICK)
    path = runs.folder / "samples.jsonl"
    rows = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([*rows[:5], rows[0]]), encoding="utf-8")
    refused = runs(*QUICK, "--resume")
    assert (refused.code, "doubled lines" in refused.err) == (2, True)


def test_a_newer_schema_is_refused(runs: Runs, unloaded: Callable[[], None]) -> None:
    runs(*QUICK)
    record = runs.json("run.json") | {"schema_version": 99}
    (runs.folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    unloaded()
    for more in ((), ("--resume",)):
        refused = runs(*QUICK, *more)
        assert (refused.code, "schema_version 99; this release reads 1" in refused.err) == (2, True)


def test_other_method_code_refuses_to_resume(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(*QUICK)
    shorten(runs, 5)
    before = contents(runs.folder)
    real = provenance.method_hash
    monkeypatch.setattr(provenance, "method_hash", lambda *given: real(*given) + "x")
    refused = runs(*QUICK, "--resume")
    assert (refused.code, "was started with other method code (" in refused.err) == (2, True)
    assert contents(runs.folder) == before


def test_a_complete_run_of_other_method_code_says_so(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(*QUICK)
    real = provenance.method_hash
    monkeypatch.setattr(provenance, "method_hash", lambda *given: real(*given) + "x")
    again = runs(*QUICK)
    assert (again.code, "stale: full, knorm, carded changed since this run was made" in again.out) == (0, True)


def test_stopping_a_run_says_how_to_go_on(runs: Runs) -> None:
    stopped = runs(*QUICK[:2], "--method", "broken", "--option", "broken.how=interrupt")
    assert (stopped.code, "--resume" in stopped.err, "Traceback" in stopped.err) == (130, True, False)
    assert runs.json("run.json")["schema_version"] == 1
    assert runs.rows() == []


def test_two_processes_never_write_the_same_folder(runs: Runs) -> None:
    assert runs(*QUICK).code == 0
    folder = runs.folder
    before = contents(folder)
    with execute.alone(RunFolder(folder)):
        for more in ((), ("--force",), ("--resume",)):
            refused = runs(*QUICK, *more)
            assert refused.code == 2 and f"another process is writing to {folder}" in refused.err
    assert contents(folder) == before
    assert runs(*QUICK, "--force").code == 0
