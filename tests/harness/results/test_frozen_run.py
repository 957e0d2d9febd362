"""A run of the first format, as commit 228549e wrote it: every later release reads it, whatever it writes itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.run_reader import read
from harness.results import mask_file
from harness.results.score_histograms import read_histograms
from leaderboard.data.library import open_library
from tests.harness.driving import ROOT, Ran

FROZEN = ROOT / "tests" / "data" / "run-v1" / "smollm2-135m-needles-4d477f41"
KVZIP = "kvzip_plus global 0.5"
FILES = ("run.json", "summary.json", "items.jsonl", "samples.jsonl", "histograms.jsonl")


def more(value: Any) -> Any:
    """A value as a later release might write it: with a field that this one does not know in every object."""
    if isinstance(value, list):
        return [more(one) for one in value]
    if isinstance(value, dict):
        new = {} if set(value) & {"needles", "python", "full", "exact_match"} or not value else {"later": 1}
        return {name: more(one) for name, one in value.items()} | new
    return value


@pytest.fixture(params=["frozen", "later"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The run, and the same with fields that this release does not know."""
    path = Path(shutil.copytree(FROZEN, tmp_path / FROZEN.name))
    if request.param == "later":
        for name in FILES:
            text = (path / name).read_text("utf-8")
            rows = text.splitlines() if name.endswith("l") else [text]
            (path / name).write_text("".join(json.dumps(more(json.loads(row))) + "\n" for row in rows), "utf-8")
    return path


def test_each_file_is_read_with_its_figures(folder: Path) -> None:
    run = read(folder)
    assert run.run.method_hashes["knorm"] == "49e93da92bf4fc69"
    assert (run.configuration.model, run.seed, run.facts["needles"].subsets, run.run.store_masks) == (
        *("smollm2-135m", 0, 4, 1),
    )
    assert [variant.level for variant in run.configuration.variants] == [None, 0.5, 0.5]
    assert run.items["needles/keys_2/256/0/0"].references == ["3179784"]
    assert [(line.variant, line.score, line.kept_pairs) for line in run.lines[:3]] == [
        ("full", 100.0, 20160),
        ("knorm head 0.5", 0.0, 10080),
        (KVZIP, 100.0, 10080),
    ]
    (histogram, _) = read_histograms(folder / "histograms.jsonl")
    assert (histogram.method, histogram.cached, sum(histogram.counts)) == ("kvzip_plus", 20160, 90 * (224 - 24))
    masks = mask_file.read(mask_file.path_of(folder, "needles/keys_2/256/0/0"))
    assert (masks.variants[2], masks.kept_pairs(KVZIP), masks.shape, masks.prefix) == (KVZIP, 10080, (30, 3, 224), 24)
    stored = run.stored
    assert stored is not None and run.summary is stored and stored.complete and stored.lines == 6
    assert {cell.variant: cell.score for cell in stored.cells if cell.subset is None} == {
        "full": 100.0,
        "knorm head 0.5": 0.0,
        KVZIP: 100.0,
    }
    (pair,) = [pair for pair in stored.pairs if pair.against == "level"]
    assert (pair.difference, pair.p, pair.tie, pair.test) == (-100.0, 0.5, True, "mcnemar")
    assert {rank.unranked for rank in stored.ranks} == {"mean of 2 of 4 subsets"}
    assert [curve.points for curve in stored.curves][1] == [[pytest.approx(0.5, abs=1e-3), 100.0]]
    assert [alarm.kind for alarm in stored.alarms] == ["partial", "answer_limit"]
    assert run.summarised(run.lines).cells == stored.cells


def test_what_is_read_is_written_as_it_was() -> None:
    run = read(FROZEN)
    for name, record in (("run.json", run.run), ("summary.json", run.summary)):
        assert json.dumps(record.to_json(), indent=1, ensure_ascii=False) + "\n" == (FROZEN / name).read_text("utf-8")
    rows = (("items.jsonl", run.items.values()), ("histograms.jsonl", read_histograms(FROZEN / "histograms.jsonl")))
    for name, records in rows:
        text = "".join(json.dumps(record.to_json(), ensure_ascii=False) + "\n" for record in records)
        assert text == (FROZEN / name).read_text("utf-8")
    lines = "".join(json.dumps(line.model_dump(), ensure_ascii=False) + "\n" for line in run.lines)
    assert lines == (FROZEN / "samples.jsonl").read_text("utf-8")


def test_every_command_that_reads_results_takes_it(cli: Callable[..., Ran], folder: Path) -> None:
    report = cli("report", folder)
    assert report.code == 0 and KVZIP in report.out and "mean of 2 of 4" in report.out
    assert "-100.0" in cli("compare", folder, "knorm head 0.5", "full").out
    assert cli("rescore", folder, "--check").out == f"{folder.name}: 6 answers scored, 0 changed\n"
    (group,) = open_library([folder]).groups
    assert (group.part.benchmark, group.part.length) == ("needles", 256)
    found = cli("validate", folder)
    assert found.code == int("later" in (folder / "run.json").read_text("utf-8")), found.out


def test_validate_refuses_fields_that_it_does_not_know(cli: Callable[..., Ran], tmp_path: Path) -> None:
    for name in FILES:
        path = Path(shutil.copytree(FROZEN, tmp_path / name / FROZEN.name))
        text = (path / name).read_text("utf-8")
        (path / name).write_text(text.replace("{", '{"later": 1, ', 1), "utf-8")
        found = cli("validate", path)
        assert found.code == 1 and "later" in found.out, name
