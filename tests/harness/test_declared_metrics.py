"""A plugin's benchmark declares a metric of its own, which all tables and the leaderboard show without knowing it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import benchmarks.registry
from benchmarks.base import Metric
from harness.results import schema
from harness.results.schema import UNDECLARED, Facts, parsed
from tests.harness.driving import Ran, Runs
from tests.harness.toys import Toy

LETTERS = Metric("letters", "letters typed", ".2e", "letters per answer", higher_is_better=False, log_scale=True)
TINY = ("--method", "knorm", "--removed", "0.5", "--limit", "2")


class Typing(Toy):
    """Toy's scores have the metric ``letters`` already; here it is declared."""

    name = "typing"
    metrics = (LETTERS,)


@pytest.fixture
def plugin_run(runs: Runs, toys: None, monkeypatch: pytest.MonkeyPatch) -> tuple[Ran, Path]:
    """A run of the plugin's benchmark, whose readers do not have the plugin."""
    benchmarks.registry.register(Typing)
    done = runs("--benchmark", "typing", *TINY)
    assert done.code == 0, done.err
    monkeypatch.delitem(benchmarks.registry._classes, "typing")
    return done, runs.folder


def test_run_report_and_csv_show_it(plugin_run: tuple[Ran, Path], cli: Callable[..., Ran], tmp_path: Path) -> None:
    done, folder = plugin_run
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    means = {cell["variant"]: cell["metrics"]["letters"] for cell in summary["cells"] if cell["subset"] is None}
    assert "letters typed" in done.out and all(f"{mean:.2e}" in done.out for mean in means.values())
    for form in ("table", "markdown", "html"):
        out = tmp_path / form
        assert cli("report", folder, "--format", form, "--out", out).code == 0
        report = out.read_text("utf-8")
        assert "letters typed" in report and all(f"{mean:.2e}" in report for mean in means.values())
    assert cli("report", folder, "--format", "csv", "--out", tmp_path / "csv").code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "csv").read_text("utf-8"))))
    found: dict[str, Any] = {row["variant"]: row for row in rows if not row["subset"]}
    for variant, mean in means.items():
        assert json.loads(found[variant]["metrics"])["letters"] == pytest.approx(mean)


def test_run_json_declares_it(plugin_run: tuple[Ran, Path]) -> None:
    facts = json.loads((plugin_run[1] / "run.json").read_text("utf-8"))["facts"]["typing"]
    assert facts["metrics"] == [
        {
            "name": "letters",
            "title": "letters typed",
            "format": ".2e",
            "description": "letters per answer",
            "higher_is_better": False,
            "log_scale": True,
        }
    ]


@pytest.mark.parametrize("bad", ["99999999.1f", "s", "{:.1f}", ".1f\n", ""])
def test_formats_in_the_files_of_others_are_checked(bad: str) -> None:
    with pytest.raises(ValueError, match=r"metrics\.0\.format"):
        parsed(Facts, {"subsets": 1, "chance": 0.0, "metrics": [{"name": "x", "title": "X", "format": bad}]})


def test_runs_without_declarations_show_the_metrics_known_then() -> None:
    assert Facts(subsets=1, chance=0.0).metrics == UNDECLARED
    today = [m for name in ("multi-question", "aime25", "fidelity") for m in benchmarks.registry.get(name).metrics]
    assert [schema.Metric(**asdict(metric)) for metric in today] == UNDECLARED
