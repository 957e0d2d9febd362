"""Which folders are runs, of the rule that ``report``, ``validate`` and the leaderboard share."""

from __future__ import annotations

from pathlib import Path

from harness.results.discovery import run_folders


def test_runs_are_found_up_to_two_folders_down(tmp_path: Path) -> None:
    runs = "a/run.json b/samples.jsonl.gz c/d/samples.jsonl c/e/f/run.json c/g/items.jsonl .h/run.json"
    for name in runs.split():
        file = tmp_path / "results" / name
        file.parent.mkdir(parents=True)
        file.touch()
    (tmp_path / "results" / "a" / "masks").mkdir()
    (tmp_path / "results" / "link").symlink_to("c")
    (tmp_path / "results" / "file").touch()
    found = [str(run.relative_to(tmp_path / "results")) for run in run_folders(tmp_path / "results")]
    assert found == ["a", "b", "c/d", "link/d"]
    assert run_folders(tmp_path / "results" / "a") == [tmp_path / "results" / "a"]
    for nothing in ("results/a/masks", "results/file", "results/none", "x" * 5_000):
        assert run_folders(tmp_path / nothing) == []
