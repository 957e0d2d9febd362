"""Readers of run folders that were damaged or come from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.analysis.boards import boards
from harness.analysis.run_reader import find
from harness.config.variants import Variant
from harness.errors import HarnessError
from harness.results.run_folder import RunFolder
from tests.harness.made_runs import FULL, both, edit_json, lines_of, summary_of, write_run


def test_characters_at_which_python_parts_lines_do_not_part_items(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lines_of(FULL, both(95)))
    rows = RunFolder(run).path / "items.jsonl"
    rows.write_text(rows.read_text("utf-8").replace("right toy", "right\u2028\u0085toy"), "utf-8")
    assert len(find(run).runs[0].items) == 24


def test_a_control_at_the_floor_without_an_overall_score_has_its_alarm() -> None:
    summary = summary_of(lines_of(FULL, {"red": [5.0] * 3, "blue": [None] * 3}))
    (told,) = [alarm.text for alarm in summary.alarms if alarm.kind == "control_at_floor"]
    assert told == "the control lies at chance or under 20: nothing can be compared"


def test_an_infinite_threshold_leaves_the_summary_json() -> None:
    variants = [Variant(name, "threshold", "threshold", float("-inf")) for name in ("kvzap_mlp", "kvzap_linear")]
    lines = [lines_of(FULL, both(95)), *(lines_of(one, both(90), removed=0.0) for one in variants)]
    assert json.loads(json.dumps(summary_of(*lines).to_json(), allow_nan=False))["pairs"][0]["asked"]["value"] == "-inf"


def test_runs_whose_lines_cannot_be_read_stand_alone(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        write_run(tmp_path / name, lines_of(FULL, both(95)))
    path = tmp_path / "second" / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"status": "ok"', b'"status": "od"', 1))
    found = boards(find(tmp_path).runs)
    assert sorted([run.name for run in board.runs] for board in found) == [["first", "third"], ["second"]]
    assert all("lines cannot be read" in board.notes[0] and "line 1" in board.notes[0] for board in found)


def test_a_link_out_of_the_results_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere", lines_of(FULL, both(95)))
    write_run(tmp_path / "results" / "first", lines_of(FULL, both(95)))
    (tmp_path / "results" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "results" / "again").symlink_to(tmp_path / "results" / "first")
    found = find(tmp_path / "results")
    assert [run.name for run in found.runs] == ["first"]
    assert [note.endswith("put the folder itself there") for note in found.notes] == [True]
    assert find(tmp_path / "results" / "link").runs[0].name == "elsewhere"  # asked for by name


def test_of_several_folders_no_run_is_read_twice(tmp_path: Path) -> None:
    for name in ("a/first", "a/second", "b/third"):
        write_run(tmp_path / name, lines_of(FULL, both(95)))
    write_run(tmp_path / "a" / "broken", lines_of(FULL, both(95)))
    (tmp_path / "a" / "broken" / "run.json").write_text("{", encoding="utf-8")
    found = find(tmp_path / "a" / "second", tmp_path / "a", tmp_path / "b", tmp_path / "a")
    assert [run.name for run in found.runs] == ["second", "first", "third"]
    assert len(found.notes) == 1 and "broken" in found.notes[0]
    with pytest.raises(HarnessError, match="gone is not a folder"):
        find(tmp_path / "b", tmp_path / "gone")


def test_a_summary_whose_cells_are_odd_is_derived_anew(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lines_of(FULL, both(95)))
    whole = json.loads((run / "summary.json").read_text("utf-8"))
    edit_json(run / "summary.json", cells=[{**whole["cells"][0], "n": "many"}])
    assert find(run).runs[0].summary.to_json()["cells"] == whole["cells"]
