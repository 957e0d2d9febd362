"""The Python API: the page's example runs as it stands, and the tables hold what the run folder has."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import harness
from harness import HarnessError, RunConfig, load, run
from harness.analysis.boards import boards
from harness.analysis.run_reader import find
from harness.evaluation import job
from harness.models import loading
from harness.reporting.render import to_csv
from tests.harness.driving import QUICK, ROOT, Runs

TOY = {"benchmark": "toy", "method": "knorm,carded", "removed": [0.5], "limit": 2}


@pytest.mark.usefixtures("toys")
def test_a_run_from_python_is_the_run_of_the_command(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    results = run(**TOY, model=runs.model, out=runs.out)
    assert [run.folder.path for run in results.runs] == [runs.folder]
    assert results.notes[-1] == f"Results (complete): {runs.folder}"
    assert list(results.lines["prediction"]) == [row["prediction"] for row in runs.rows()]
    summary = runs.json("summary.json")["cells"]
    assert [*zip(results.cells["variant"], results.cells["n"], strict=True)] == [
        (c["variant"], c["n"]) for c in summary
    ]
    monkeypatch.setattr(loading, "load_model", None)  # any use of it fails
    again = run(RunConfig(**TOY, model=runs.model, out=runs.out), progress=True)
    assert again.notes[-1] == f"Results (was complete already): {runs.folder}"
    assert "was complete already" in runs(*QUICK).out


def test_cells_are_those_of_the_csv_report() -> None:
    committed = ROOT / "results"
    rows = list(csv.DictReader(io.StringIO(to_csv(boards(find(committed).runs)))))
    cells = load(committed).cells
    assert list(cells.columns) == list(rows[0])
    assert [float(row["score"]) if row["score"] else None for row in rows] == [
        None if pd.isna(score) else score for score in cells["score"]
    ]


def test_a_plot_has_the_points_of_the_boards() -> None:
    results = load(ROOT / "results")
    chart = results.plot()
    overall = results.cells[results.cells["subset"].isna()]
    assert len(chart.data) == overall["score"].notna().sum()
    assert {"removed", "score", "low", "high", "curve"} <= set(chart.data.columns)
    assert chart.to_dict()["facet"]["field"] == "board"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": 0}, "--limit must be a whole number from 1"),
        ({"methods": "knorm"}, "unknown key 'methods'; known, nearest first: method"),
        ({"config": RunConfig(), "limit": 1}, "give a RunConfig or limit, not both"),
    ],
)
def test_mistakes_are_told_as_on_the_command_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        run(**given)


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import harness, sys; print([name for name in ('torch', 'pandas', 'pydantic') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'plots'"):
        harness.plots  # noqa: B018
    assert set(harness.__all__) <= set(dir(harness)) | set(harness._HOMES)


def test_the_page_runs_as_it_stands(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "python-api.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    monkeypatch.chdir(tmp_path)
    resolve = job.resolve
    small = {"model": str(model_folder), "length": (256,), "subset": ("keys_1",), "max_new_tokens": 2}
    monkeypatch.setattr(job, "resolve", lambda config: resolve(config.model_copy(update=small)))
    exec(compile(code, "python-api.md", "exec"), {})
    told = capsys.readouterr().out
    assert "knorm head 0.25" in told and "Results (complete): results/" in told
    assert (tmp_path / "curves.html").stat().st_size > 1000
