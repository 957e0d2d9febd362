"""The adaptivity page on the committed run: the slider's figures are those of the histograms' counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from harness.board import RESULTS
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, both, write_run
from tests.harness.made_runs import lines_of as made

PAGE = Path(__file__).parents[2] / "leaderboard" / "views" / "adaptivity.py"


def opened(monkeypatch: pytest.MonkeyPatch, results: Path, cache: Path) -> AppTest:
    monkeypatch.setenv(RESULTS, str(results))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    app = AppTest.from_file(str(PAGE), default_timeout=300).run()
    assert not app.exception
    return app


def test_the_slider_moves_the_figure_to_the_counts_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = opened(monkeypatch, COMMITTED, tmp_path)
    method = app.selectbox(key="scores").value
    rows = [json.loads(row) for row in (COMMITTED / "histograms.jsonl").read_text("utf-8").splitlines()]
    own = [row for row in rows if row["method"] == method]
    assert own
    for tau in (-5.0, -2.0):
        app.slider(key="tau").set_value(tau).run()
        assert not app.exception
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
