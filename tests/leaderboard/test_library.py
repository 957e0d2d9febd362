"""What is found under a results folder, what is kept between starts, and what is never read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.boards import boards
from harness.analysis.run_reader import read
from harness.errors import HarnessError
from harness.results.run_folder import RunFolder
from leaderboard.data import disk_cache
from leaderboard.data.differences import lines_of as lines_of_group
from leaderboard.data.discovery import stamp_of, stamps
from leaderboard.data.library import distinct, open_library
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, both, lines_of, write_run


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_run(tmp_path / "results" / "one", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(60))])
    write_run(tmp_path / "results" / "deeper" / "two", [*lines_of(FULL, both(100)), *lines_of(KEYDIFF, both(70))])
    write_run(tmp_path / "results" / "other", [*lines_of(FULL, both(90)), *lines_of(KEYDIFF, both(70))])
    return tmp_path / "results"


def test_runs_with_one_control_share_a_board_as_the_report_has_it(results: Path) -> None:
    found = open_library([results])
    names = [[entry.name for entry in group.entries] for group in found.groups]
    assert sorted(map(sorted, names)) == [["one", "two"], ["other"]]
    shared = next(group for group in found.groups if len(group.entries) == 2)
    by_report = boards([entry.reading for entry in shared.entries])[0]
    assert found.board(shared).cells == json.loads(json.dumps(by_report.cells))
    assert found.board(shared).ranks == by_report.ranks
    assert shared.parts[0].engines == ("masked",) and shared.parts[0].levels == (("removed", 0.5),)


def test_a_cached_start_reads_no_summary(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_library([results])
    for group in first.groups:
        first.board(group)

    def fail(self: RunFolder) -> None:
        raise AssertionError(f"{self.path} was read")

    monkeypatch.setattr(RunFolder, "summary", fail)
    monkeypatch.setattr(RunFolder, "lines", fail)
    again = open_library([results])
    assert [group.key for group in again.groups] == [group.key for group in first.groups]
    for group in again.groups:
        assert again.board(group).cells == first.board(first.groups[again.groups.index(group)]).cells


def test_a_changed_run_is_read_anew(results: Path) -> None:
    before, first = stamps([results]), open_library([results])
    write_run(results / "one", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(10))])
    os.utime(results / "one" / "summary.json", ns=(1, 1))
    assert stamps([results]) != before
    group = next(group for group in open_library([results]).groups if len(group.entries) == 2)
    scores = {cell["variant"]: cell["score"] for cell in open_library([results]).board(group).cells}
    assert scores["knorm head 0.5"] == 10
    assert {one.key for one in first.groups} == {one.key for one in open_library([results]).groups}


def test_a_damaged_cache_costs_time_only(results: Path) -> None:
    keys = [group.key for group in open_library([results]).groups]
    for file in disk_cache.cache_folder().iterdir():
        file.write_text("{", encoding="utf-8")
    assert [group.key for group in open_library([results]).groups] == keys


def test_what_nobody_asks_for_is_removed_in_the_end(results: Path) -> None:
    open_library([results])
    kept = sorted(disk_cache.cache_folder().iterdir())
    long_ago = time.time() - (disk_cache.KEPT_DAYS + 1) * 86_400
    for file in kept:
        os.utime(file, (long_ago, long_ago))
    cached = disk_cache.cached("entry", stamp_of(results / "one"), dict)  # asked for again
    assert cached
    disk_cache.trim()
    (left,) = disk_cache.cache_folder().iterdir()
    assert left in kept and json.loads(left.read_text("utf-8")) == cached


def test_boards_of_one_title_are_told_apart(tmp_path: Path) -> None:
    def made(folder: str, count: int, **more: Any) -> None:
        lines = [*lines_of(FULL, {"red": [100.0] * count}), *lines_of(KNORM, {"red": [90.0] * count})]
        write_run(tmp_path / folder, lines, **more)

    made("few", 3)
    made("many", 12)
    made("half", 12, dtype="bfloat16")
    made("other", 12, model="other")
    groups = open_library([tmp_path]).groups
    names = sorted(distinct(groups, lambda group: group.title).values())
    titles = ["12 samples, bfloat16, prefill, agnostic", "12 samples, float32, prefill, agnostic", "3 samples"]
    assert names == sorted([f"tiny, toy at 64 tokens, {title}" for title in titles] + ["other, toy at 64 tokens"])


def test_a_board_at_the_floor_comes_last_of_its_model(tmp_path: Path) -> None:
    for length, control in ((32, 10.0), (64, 100.0), (128, 10.0), (256, 100.0)):
        lines = [*lines_of(FULL, both(control), length=length), *lines_of(KNORM, both(control / 2), length=length)]
        write_run(tmp_path / str(length), lines)
    write_run(tmp_path / "other", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(50))], model="zeta")
    places = [(group.part.basis["model"], group.part.length) for group in open_library([tmp_path]).groups]
    assert places == [("tiny", 64), ("tiny", 256), ("tiny", 32), ("tiny", 128), ("zeta", 64)]


def test_links_out_of_the_results_are_listed_and_not_read(results: Path, tmp_path: Path) -> None:
    outside = write_run(tmp_path / "elsewhere", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(1))])
    (results / "linked").symlink_to(outside)
    (results / "deep").mkdir()
    (results / "deep" / "linked").symlink_to(outside)
    (results / "parent").symlink_to(tmp_path)
    for name in ("run.json", "samples.jsonl", "items.jsonl", "summary.json"):
        folder = write_run(results / f"link-{name}", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(2))])
        (folder / name).unlink()
        (folder / name).symlink_to(outside / name)
    found = open_library([results])
    assert {entry.name for entry in found.entries} == {"one", "two", "other"}
    assert len(found.broken) == 7 and all("link" in one.reason for one in found.broken)


def test_a_results_folder_may_itself_be_a_link(results: Path, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(results)
    assert len(open_library([tmp_path / "shortcut", results]).entries) == 3


def test_a_run_given_beside_its_folder_counts_once(results: Path) -> None:
    given = [results, results / "one", results / "deeper", results / "one" / ".." / "one"]
    found = open_library(given)
    assert sorted(entry.name for entry in found.entries) == ["one", "other", "two"]
    assert sorted(len(group.entries) for group in found.groups) == [1, 2]
    assert stamps(given) == stamps([results])
    (results / "broken").mkdir()
    (results / "broken" / "run.json").write_text("{}", encoding="utf-8")
    assert len(open_library([results, results / "broken"]).broken) == 1


@pytest.mark.parametrize(
    "content", ["", "[]", "nonsense", '{"schema_version": 99}', "[" * 100_000, "\x00", '"\\ud800"']
)
def test_a_foreign_run_file_breaks_its_own_folder_alone(results: Path, content: str) -> None:
    (results / "one" / "run.json").write_text(content, encoding="utf-8")
    found = open_library([results])
    assert {entry.name for entry in found.entries} == {"two", "other"}
    assert [one.name for one in found.broken] == ["one"] and found.broken[0].reason


def test_a_board_that_breaks_says_so(results: Path) -> None:
    found = open_library([results])
    group = next(group for group in found.groups if len(group.entries) == 2)
    for run in ("one", "deeper/two"):  # of one alone the other's board would be left
        (results / run / "samples.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(HarnessError):
        found.board(group)


def test_a_folder_asked_for_itself(results: Path) -> None:
    assert [entry.name for entry in open_library([results / "one"]).entries] == ["one"]
    assert read(results / "one").name == "one"


@pytest.mark.parametrize("change", [(b'"status": "ok"', b'"status": "od"'), (b'"score": 70.0', b'"score": NaN')])
def test_a_line_that_cannot_be_read_takes_no_other_runs_board_away(results: Path, change: tuple[bytes, bytes]) -> None:
    path = results / "deeper" / "two" / "samples.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    rows[-1] = rows[-1].replace(*change)  # of a pruned variant
    assert rows[-1] != path.read_bytes().splitlines(keepends=True)[-1]
    path.write_bytes(b"".join(rows))
    for found in (open_library([results]), open_library([results])):  # made, and from the cache
        group = next(group for group in found.groups if len(group.entries) == 2)
        board = found.board(group)
        assert [cell["variant"] for cell in board.cells if cell["subset"] is None] == ["full", "knorm head 0.5"]
        assert [run.name for run in board.runs] == ["one"]
        (note,) = board.notes
        assert note.startswith("left out: ") and f"two/samples.jsonl, line {len(rows)}" in note
        assert {line.variant for line in lines_of_group(group)} == {"full", "knorm head 0.5"}


def test_a_count_of_samples_that_is_not_known_is_not_0(tmp_path: Path) -> None:
    for name, count in (("few", 1), ("many", 12)):
        lines = [*lines_of(FULL, {"red": [100.0] * count}), *lines_of(KNORM, {"red": [90.0] * count})]
        write_run(tmp_path / name, lines)
    (tmp_path / "many" / "items.jsonl").unlink()
    names = distinct(open_library([tmp_path]).groups, lambda group: group.title).values()
    assert sorted(name.rpartition(", ")[2] for name in names) == ["1 sample", "samples not known"]
