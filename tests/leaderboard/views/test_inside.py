"""Look inside: a page of letters and rectangles, whatever the files hold."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from leaderboard.views.inside import jump
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, RANDOM, lines_of, write_run
from tests.leaderboard.conftest import Page
from tests.leaderboard.data.test_sample_view import HOSTILE, SAMPLE, masks_of


def made_run(results: Path, prediction: str = "an answer") -> Path:
    lines = lines_of(FULL, {"red": [100.0, 50.0], "blue": [0.0]}, kept_pairs=48, cached_pairs=48)
    lines += lines_of(KNORM, {"red": [40.0, 50.0], "blue": [10.0]}, kept_pairs=28, prediction=prediction)
    return write_run(results / "run", lines + lines_of(RANDOM, {"red": [0.0, 0.0], "blue": [0.0]}))


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("vega_lite_chart")]


def test_a_sample_with_masks_is_shown_with_answers_and_differences(page: Page, results: Path) -> None:
    masks_of(made_run(results), tokens=["<u>", "\n", *"abcdef"])
    app = page("inside")
    assert app.selectbox(key="sample").value == SAMPLE
    assert "an answer" in [block.value for block in app.code]
    table = app.dataframe[0].value
    assert table["change"].tolist() == [-60.0, 10.0] and table["masks"].tolist() == [True, False]
    captions = " ".join(caption.value for caption in app.caption).replace("\\", "")
    assert "different scores on 2 of 3 samples, 1 better and 1 worse" in captions
    assert len(charts(app)) == 2
    app.selectbox(key="other").set_value("random head 0.5").run()
    assert not app.exception and len(charts(app)) == 2  # random's mask is not stored
    assert any("no mask" in warning.value for warning in app.warning)
    assert app.dataframe[0].value["change"].tolist() == [10.0, 40.0, 50.0]  # now against random


def test_hostile_texts_are_letters(page: Page, results: Path) -> None:
    masks_of(made_run(results, "<script>alert(1)</script>"), tokens=["<u>", "</u>", *HOSTILE])
    app = page("inside")
    assert len(charts(app)) == 2 and not app.get("html") and not app.get("iframe")
    for one in [*app.markdown, *app.caption, *app.info, *app.warning, *app.error]:
        assert "<script" not in one.value and "onerror" not in one.value
        assert not getattr(one, "allow_html", False)
    assert any("<script>" in block.value for block in app.code)  # an answer, letter by letter


def test_without_texts_positions_are_left_and_without_masks_it_is_said_how_to_store_them(
    page: Page, results: Path
) -> None:
    masks_of(made_run(results), lengths=[1] * 8)
    app = page("inside")
    assert any("positions in the context" in info.value for info in app.info) and len(charts(app)) == 2
    app = page("inside", COMMITTED)
    assert any("--store-masks" in block.value for block in app.code) and not charts(app)
    assert len(app.dataframe[0].value) > 0  # answers and differences are there all the same


def test_damage_is_told_on_the_page(page: Page, results: Path) -> None:
    folder = masks_of(made_run(results), tokens=list("abcdefgh"))
    (file,) = (folder / "masks").iterdir()
    file.write_bytes(b"PK no zip")
    app = page("inside", broken=True)
    assert any("cannot be read as stored masks" in error.value.replace("\\", "") for error in app.error)
    samples = folder / "samples.jsonl"
    samples.write_text("".join(samples.read_text("utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    app = page("inside", broken=True)
    told = [error.value for error in app.error]
    told += [why for frame in app.dataframe if "why" in frame.value for why in frame.value["why"]]
    assert any("lines that the run had" in text for text in told), told


def test_a_chosen_row_shows_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"differences": SimpleNamespace(selection=SimpleNamespace(rows=[1])), "sample": "a"}
    monkeypatch.setattr(st, "session_state", state)
    for row in (1, 7):  # the second is no longer there
        state["differences"].selection.rows = [row]
        jump(["a", "b"])
        assert state["sample"] == "b"
