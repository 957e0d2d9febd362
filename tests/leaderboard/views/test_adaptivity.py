"""The adaptivity page: the slider's figures are those of the histograms' counts, whatever files hold."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, KVZAP, both, changed, lines_of, write_run
from tests.leaderboard.conftest import Page


def table(app: AppTest, column: str) -> Any:
    assert not app.exception and not app.error
    return next(one.value for one in app.dataframe if column in one.value)


def store_histogram(run: Path, **more: object) -> None:
    row = {"sample_id": "toy/red/64/0/0", "method": "kvzap_mlp", "options": "{}", "window": 128, "sinks": 0}
    with (run / "histograms.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "counts": [1] * 240, "cached": 240, **more}) + "\n")


def test_the_slider_moves_the_figure_to_the_counts_share(page: Page) -> None:
    app = page("adaptivity", COMMITTED)
    method = app.selectbox(key="scores").value
    rows = [json.loads(row) for row in (COMMITTED / "histograms.jsonl").read_text("utf-8").splitlines()]
    own = [row for row in rows if row["method"] == method]
    for tau in (-5.0, -2.0):
        app.slider(key="tau").set_value(tau).run()
        below = round((tau + 20) / 0.1)  # on an edge: bins of 0.1 from -20
        expected = [sum(row["counts"][:below]) / row["cached"] for row in own]
        (told,) = table(app, "at least").to_dict("records")
        assert told["prompts"] == len(own) == 20
        assert told["mean"] == pytest.approx(sum(expected) / len(expected))
        assert [told["min"], told["max"]] == pytest.approx([min(expected), max(expected)])
        assert told["at least"] == told["at most"] == pytest.approx(told["mean"])


def test_where_there_is_no_threshold_the_page_says_why(page: Page, results: Path) -> None:
    assert page("adaptivity").info  # no runs
    write_run(results / "a", [*lines_of(FULL, both(90.0)), *lines_of(KNORM, both(50.0))])
    assert any("No run here has a threshold" in one.value for one in page("adaptivity").info)
    (told,) = [one.value for one in page("adaptivity", COMMITTED, method="knorm").info]
    assert "hides all thresholds here" in told and "kvzap" in told


def test_thresholds_that_few_digits_merge_are_apart(page: Page, results: Path) -> None:
    lines = lines_of(FULL, both(90.0))
    for tau, removed in ((-4.366201, 0.5), (-4.366202, 0.4)):
        lines += lines_of(changed(KVZAP, level=tau), both(50.0), removed=removed)
    write_run(results / "a", lines)
    app = page("adaptivity")
    box = app.selectbox(key="run")
    assert box.options == ["τ = -4.366202", "τ = -4.366201"] and box.value == -4.366201
    for tau, removed in ((-4.366202, 0.4), (-4.366201, 0.5)):
        app.selectbox(key="run").set_value(tau).run()
        assert table(app, "q25")["mean"].tolist() == [pytest.approx(removed)]


@pytest.mark.parametrize(
    ("tau", "low", "high", "ends"),
    [(1e308, -20.0, 4.0, (-20.0, 4.0)), (5e-7, 0.0, 1e-6, (0.0, 1e-6)), (0.0, -8e307, 8e307, (-8e307, 8e307))],
)
def test_odd_thresholds_and_bins_open(
    page: Page, results: Path, tau: float, low: float, high: float, ends: tuple[float, float]
) -> None:
    pruned = lines_of(changed(KVZAP, level=tau), both(50.0), removed=0.9)
    store_histogram(write_run(results / "a", [*lines_of(FULL, both(90.0)), *pruned]), low=low, high=high)
    app = page("adaptivity")
    slider = app.slider(key="tau")
    assert (slider.min, slider.max) == (pytest.approx(ends[0], abs=1e-9), pytest.approx(ends[1]))
    assert any("beyond all stored scores" in one.value for one in app.caption) == (tau > high)
    assert table(app, "outside")["tau"].tolist() == [tau]


def test_other_scores_have_a_threshold_of_their_own(page: Page, results: Path) -> None:
    linear = changed(KVZAP, method="kvzap_linear", level=50.0)
    lines = [
        line for one, score in ((FULL, 90.0), (KVZAP, 50.0), (linear, 50.0)) for line in lines_of(one, both(score))
    ]
    run = write_run(results / "a", lines)
    store_histogram(run, low=-20.0, high=4.0)
    store_histogram(run, method="kvzap_linear", low=-10.0, high=60.0, counts=[3] * 70)
    app = page("adaptivity")
    app.slider(key="tau").set_value(-8.0).run()
    app.selectbox(key="scores").set_value("kvzap_linear").run()
    for _ in range(2):  # and it stays so
        assert table(app, "at least")["mean"].tolist() == [pytest.approx(180 / 240)]
        (slider,) = app.slider
        assert (slider.min, slider.max, slider.value) == (-10.0, 60.0, 50.0)
        app.run()
    app.selectbox(key="scores").set_value("kvzap_mlp").run()
    assert app.slider(key="tau").max == 4.0


def test_a_folder_whose_name_is_not_text(page: Page, results: Path) -> None:
    shutil.copytree(COMMITTED, results / os.fsdecode(b"odd-\xff\xfe"))
    assert page("adaptivity").slider(key="tau") is not None


def test_several_models_are_chosen_from(page: Page, results: Path) -> None:
    for model, tau in (("a", -4.0), ("b", -5.0)):
        lines = [*lines_of(FULL, both(90.0)), *lines_of(changed(KVZAP, level=tau), both(50.0))]
        write_run(results / model, lines, model=model)
    app = page("adaptivity")
    assert app.selectbox(key="run").value == -4.0
    app.selectbox(key="of").set_value("b").run()
    assert app.selectbox(key="run").value == -5.0
