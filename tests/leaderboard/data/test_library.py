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
from leaderboard.data.discovery import stamp_of, stamps
from leaderboard.data.library import Group, Library, distinct, open_library
from leaderboard.data.library import lines_of as lines_of_group
from leaderboard.prebuild import warm
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, both, lines_of, write_run


@pytest.fixture
def runs(results: Path) -> Path:
    """Two runs of one board, and one whose control has other scores."""
    write_run(results / "one", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(60))])
    write_run(results / "deeper" / "two", [*lines_of(FULL, both(100)), *lines_of(KEYDIFF, both(70))])
    write_run(results / "other", [*lines_of(FULL, both(90)), *lines_of(KEYDIFF, both(70))])
    return results


def shared(library: Library) -> Group:
    return next(group for group in library.groups if len(group.entries) == 2)


def test_runs_with_one_control_share_a_board_as_the_report_has_it(runs: Path) -> None:
    found = open_library([runs])
    assert sorted(sorted(entry.name for entry in group.entries) for group in found.groups) == [
        ["one", "two"],
        ["other"],
    ]
    group = shared(found)
    by_report = boards([entry.reading for entry in group.entries])[0]
    board = found.board(group)
    assert (board.cells, board.ranks, board.pairs) == (by_report.cells, by_report.ranks, by_report.pairs)
    assert group.parts[0].engines == ("masked",) and group.parts[0].levels == (("removed", 0.5),)
    assert found.methods == ["full", "keydiff", "knorm"]


def test_a_cached_start_reads_no_summary(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert warm([runs]) == 2
    first = open_library([runs])
    cells = {group.key: first.board(group).cells for group in first.groups}

    def fail(self: RunFolder) -> None:
        raise AssertionError(f"{self.path} was read")

    monkeypatch.setattr(RunFolder, "summary", fail)
    monkeypatch.setattr(RunFolder, "lines", fail)
    again = open_library([runs])
    assert {group.key: again.board(group).cells for group in again.groups} == cells


def test_a_changed_run_is_read_again(runs: Path) -> None:
    before, keys = stamps([runs]), {group.key for group in open_library([runs]).groups}
    write_run(runs / "one", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(10))])
    os.utime(runs / "one" / "summary.json", ns=(1, 1))
    library = open_library([runs])
    assert stamps([runs]) != before and {group.key for group in library.groups} == keys
    scores = {cell.variant: cell.score for cell in library.board(shared(library)).cells}
    assert scores["knorm head 0.5"] == 10


def test_a_damaged_cache_costs_time_only(runs: Path) -> None:
    keys = [group.key for group in open_library([runs]).groups]
    for file in disk_cache.cache_folder().iterdir():
        file.write_text("{", encoding="utf-8")
    assert [group.key for group in open_library([runs]).groups] == keys


def test_a_cache_that_cannot_be_written_costs_time_only(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(runs / "one" / "run.json"))
    assert len(open_library([runs]).groups) == 2


def test_what_nobody_asks_for_is_removed_in_the_end(runs: Path) -> None:
    open_library([runs])
    kept = sorted(disk_cache.cache_folder().iterdir())
    long_ago = time.time() - (disk_cache.KEPT_DAYS + 1) * 86_400
    for file in kept:
        os.utime(file, (long_ago, long_ago))
    cached = disk_cache.cached("entry", stamp_of(runs / "one"), dict)  # asked for again
    assert cached
    disk_cache.trim()
    (left,) = disk_cache.cache_folder().iterdir()
    assert left in kept and json.loads(left.read_text("utf-8")) == cached


def test_boards_of_one_title_are_distinguished(results: Path) -> None:
    def made(folder: str, count: int, **more: Any) -> Path:
        lines = [*lines_of(FULL, {"red": [100.0] * count}), *lines_of(KNORM, {"red": [90.0] * count})]
        return write_run(results / folder, lines, **more)

    def names() -> list[str]:
        return sorted(distinct(open_library([results]).groups, lambda group: group.title).values())

    made("few", 1)
    made("many", 12)
    made("half", 12, dtype="bfloat16")
    made("other", 12, model="other")
    titles = ["1 sample", "12 samples, bfloat16, prefill, agnostic", "12 samples, float32, prefill, agnostic"]
    assert names() == ["other, toy at 64 tokens", *(f"tiny, toy at 64 tokens, {title}" for title in titles)]
    for folder in ("many", "few"):  # a count that is not known is not 0
        (results / folder / "items.jsonl").unlink()
    assert any(name.startswith("tiny, toy at 64 tokens, samples not known, ") for name in names())


def test_a_board_at_the_floor_comes_last_of_its_model(results: Path) -> None:
    for length, control in ((32, 10.0), (64, 100.0), (128, 10.0), (256, 100.0)):
        lines = [*lines_of(FULL, both(control), length=length), *lines_of(KNORM, both(control / 2), length=length)]
        write_run(results / str(length), lines)
    write_run(results / "other", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(50))], model="zeta")
    places = [(group.part.basis["model"], group.part.length) for group in open_library([results]).groups]
    assert places == [("tiny", 64), ("tiny", 256), ("tiny", 32), ("tiny", 128), ("zeta", 64)]


def test_links_out_of_the_results_are_listed_and_not_read(runs: Path, tmp_path: Path) -> None:
    outside = write_run(tmp_path / "elsewhere", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(1))])
    (runs / "linked").symlink_to(outside)
    (runs / "deep").mkdir()
    (runs / "deep" / "linked").symlink_to(outside)
    (runs / "parent").symlink_to(tmp_path)
    for name in ("run.json", "samples.jsonl", "items.jsonl", "summary.json"):
        folder = write_run(runs / f"link-{name}", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(2))])
        (folder / name).unlink()
        (folder / name).symlink_to(outside / name)
    found = open_library([runs])
    assert {entry.name for entry in found.entries} == {"one", "two", "other"}
    assert len(found.broken) == 7 and all("link" in one.reason for one in found.broken)


def test_each_run_counts_once_by_whatever_path_it_is_given(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(runs)
    given = [tmp_path / "shortcut", runs, runs / "one", runs / "deeper", runs / "one" / ".." / "one"]
    found = open_library(given)
    assert sorted(entry.name for entry in found.entries) == ["one", "other", "two"]
    assert sorted(len(group.entries) for group in found.groups) == [1, 2]
    assert stamps(given) == stamps([runs])
    assert [entry.name for entry in open_library([runs / "one"]).entries] == ["one"] == [read(runs / "one").name]
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{}", encoding="utf-8")
    assert len(open_library([runs, runs / "broken"]).broken) == 1


@pytest.mark.parametrize(
    "content", ["", "[]", "nonsense", '{"schema_version": 99}', "[" * 100_000, "\x00", '"\\ud800"']
)
def test_a_foreign_run_file_breaks_its_own_folder_alone(runs: Path, content: str) -> None:
    (runs / "one" / "run.json").write_text(content, encoding="utf-8")
    found = open_library([runs])
    assert {entry.name for entry in found.entries} == {"two", "other"}
    assert [one.name for one in found.broken] == ["one"] and found.broken[0].reason


def test_a_variant_in_two_runs_counts_once(runs: Path) -> None:
    write_run(runs / "three", [*lines_of(FULL, both(100)), *lines_of(KNORM, both(40)), *lines_of(KEYDIFF, both(30))])
    group = next(group for group in open_library([runs]).groups if len(group.entries) == 3)
    found = lines_of_group(group)  # of the first run in the order of the folders
    assert len(found) == 3 * 24 and {line.score for line in found if line.method == "keydiff"} == {70.0}


@pytest.mark.parametrize("change", [(b'"status": "ok"', b'"status": "od"'), (b'"score": 70.0', b'"score": NaN')])
def test_a_line_that_cannot_be_read_takes_no_other_runs_board_away(runs: Path, change: tuple[bytes, bytes]) -> None:
    path = runs / "deeper" / "two" / "samples.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    rows[-1] = rows[-1].replace(*change)  # of a pruned variant
    assert rows[-1] != path.read_bytes().splitlines(keepends=True)[-1]
    path.write_bytes(b"".join(rows))
    for found in (open_library([runs]), open_library([runs])):  # made, and from the cache
        group = shared(found)
        board = found.board(group)
        assert [cell.variant for cell in board.cells if cell.subset is None] == ["full", "knorm head 0.5"]
        assert [run.name for run in board.runs] == ["one"]
        (note,) = board.notes
        assert note.startswith("left out: ") and f"two/samples.jsonl, line {len(rows)}" in note
        assert {line.variant for line in lines_of_group(group)} == {"full", "knorm head 0.5"}


def test_a_board_of_which_no_run_can_be_read_says_so(runs: Path) -> None:
    found = open_library([runs])
    for run in ("one", "deeper/two"):
        (runs / run / "samples.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(HarnessError):
        found.board(shared(found))
    assert warm([runs]) == 1  # the other board
