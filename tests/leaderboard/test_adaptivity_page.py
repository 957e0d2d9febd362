"""The adaptivity page on the committed run: the slider's figures are those of the histograms' counts."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from leaderboard.views.layout import RESULTS
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, KVZAP, both, write_run
from tests.harness.made_runs import lines_of as made

PAGE = Path(__file__).parents[2] / "leaderboard" / "views" / "adaptivity.py"


def opened(monkeypatch: pytest.MonkeyPatch, results: Path, cache: Path) -> AppTest:
    monkeypatch.setenv(RESULTS, str(results))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    app = AppTest.from_file(str(PAGE), default_timeout=300).run()
    assert not app.exception and not app.error
    return app


def test_the_slider_moves_the_figure_to_the_counts_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = opened(monkeypatch, COMMITTED, tmp_path)
    method = app.selectbox(key="scores").value
    rows = [json.loads(row) for row in (COMMITTED / "histograms.jsonl").read_text("utf-8").splitlines()]
    own = [row for row in rows if row["method"] == method]
    assert own
    for tau in (-5.0, -2.0):
        app.slider(key="tau").set_value(tau).run()
        assert not app.exception and not app.error
        table = next(one.value for one in app.dataframe if "at least" in one.value)
        below = round((tau + 20) / 0.1)  # on an edge: bins of 0.1 from -20
        expected = [sum(row["counts"][:below]) / row["cached"] for row in own]
        (told,) = table.to_dict("records")
        assert told["prompts"] == len(own) == 20
        assert told["mean"] == pytest.approx(sum(expected) / len(expected))
        assert [told["min"], told["max"]] == pytest.approx([min(expected), max(expected)])
        assert told["at least"] == told["at most"] == pytest.approx(told["mean"])


def test_runs_without_thresholds_and_no_runs_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    assert opened(monkeypatch, results, tmp_path).info
    write_run(results / "a", [*made(FULL, both(90.0)), *made(KNORM, both(50.0))])
    assert any("No run here has a threshold" in one.value for one in opened(monkeypatch, results, tmp_path).info)


def histograms_of(run: Path, **more: object) -> None:
    row = {
        "sample_id": "toy/red/64/0/0",
        "options": "{}",
        "window": 128,
        "sinks": 0,
        "counts": [1] * 240,
        "cached": 240,
    }
    text = json.dumps({"method": "kvzap_mlp", "counts": [1] * 240, **row, **more}) + "\n"
    with (run / "histograms.jsonl").open("a", encoding="utf-8") as file:
        file.write(text)


def test_thresholds_that_few_digits_merge_are_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = made(FULL, both(90.0))
    for tau, removed in ((-4.366201, 0.5), (-4.366202, 0.4)):
        lines += made(replace(KVZAP, level=tau), both(50.0), removed=removed)
    write_run(tmp_path / "results" / "a", lines)
    app = opened(monkeypatch, tmp_path / "results", tmp_path)
    box = app.selectbox(key="run")
    assert box.options == ["τ = -4.366202", "τ = -4.366201"] and box.value == -4.366201
    means = {}
    for tau in (-4.366202, -4.366201):
        app.selectbox(key="run").set_value(tau).run()
        assert not app.exception and not app.error
        means[tau] = next(one.value for one in app.dataframe if "q25" in one.value)["mean"].tolist()
    assert means == {-4.366202: [pytest.approx(0.4)], -4.366201: [pytest.approx(0.5)]}


@pytest.mark.parametrize(
    ("tau", "low", "high", "ends"),
    [(1e308, -20.0, 4.0, (-20.0, 4.0)), (5e-7, 0.0, 1e-6, (0.0, 1e-6)), (0.0, -8e307, 8e307, (-8e307, 8e307))],
)
def test_odd_thresholds_and_bins_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tau: float, low: float, high: float, ends: tuple[float, float]
) -> None:
    run = tmp_path / "results" / "a"
    write_run(run, [*made(FULL, both(90.0)), *made(replace(KVZAP, level=tau), both(50.0), removed=0.9)])
    histograms_of(run, low=low, high=high)
    app = opened(monkeypatch, tmp_path / "results", tmp_path)
    slider = app.slider(key="tau")
    assert (slider.min, slider.max) == (pytest.approx(ends[0], abs=1e-9), pytest.approx(ends[1]))
    assert any("beyond all stored scores" in one.value for one in app.caption) == (tau > high)
    assert next(one.value for one in app.dataframe if "outside" in one.value)["tau"].tolist() == [tau]


def test_other_scores_have_a_threshold_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = tmp_path / "results" / "a"
    linear = replace(KVZAP, method="kvzap_linear", level=50.0)
    write_run(run, [*made(FULL, both(90.0)), *made(KVZAP, both(50.0)), *made(linear, both(50.0))])
    histograms_of(run, low=-20.0, high=4.0)
    histograms_of(run, method="kvzap_linear", low=-10.0, high=60.0, counts=[3] * 70)
    app = opened(monkeypatch, tmp_path / "results", tmp_path)
    app.slider(key="tau").set_value(-8.0).run()
    app.selectbox(key="scores").set_value("kvzap_linear").run()
    for _ in range(2):  # and it stays so
        assert not app.exception and not app.error
        (slider,) = app.slider
        assert (slider.min, slider.max, slider.value) == (-10.0, 60.0, 50.0)
        told = next(one.value for one in app.dataframe if "at least" in one.value)
        assert told["mean"].tolist() == [pytest.approx(180 / 240)]
        app.run()
    app.selectbox(key="scores").set_value("kvzap_mlp").run()
    assert app.slider(key="tau").max == 4.0


def test_a_folder_whose_name_is_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(COMMITTED, tmp_path / "results" / os.fsdecode(b"odd-\xff\xfe"))
    app = opened(monkeypatch, tmp_path / "results", tmp_path / "cache")
    assert app.slider(key="tau") is not None


def test_thresholds_that_a_filter_hides_are_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(RESULTS, str(COMMITTED))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    app = AppTest.from_file(str(PAGE), default_timeout=300)
    app.query_params["method"] = "knorm"
    app.run()
    assert not app.exception and not app.error
    (told,) = [one.value for one in app.info]
    assert "hides all thresholds here" in told and "kvzap" in told
