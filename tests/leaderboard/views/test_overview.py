"""The overview through Streamlit's own test: filters, address, table, download, and text of strangers."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from harness.analysis.boards import board_of
from harness.analysis.run_reader import read
from harness.config.variants import Variant
from harness.results.safe_text import clean
from harness.results.schema import Line
from leaderboard.views.overview_table import csv_of
from tests.harness.made_runs import FULL, KVZAP, both, changed, edit_json, lines_of, write_run
from tests.leaderboard.conftest import Page
from tests.leaderboard.test_escaping import HOSTILE

#: longest name that a run folder may have in its records
MOST_NAME = 1_000
Curves = dict[str, dict[float, float]]


def lines(curves: Curves, engine: str = "masked") -> list[Line]:
    """Those of the full cache and of methods, by their scores by level."""
    held = {"physical_bytes": 8 << 20} if engine == "compact" else {}
    found = lines_of(changed(FULL, engine=engine), both(100), **held)
    held = {"physical_bytes": 4 << 20} if held else {}
    for method, scores in curves.items():
        for level, score in scores.items():
            found += lines_of(Variant(method, "head", "removed", level, engine=engine), both(score), **held)
    return found


def falling(**methods: float) -> Curves:
    return {name: {level: score * (1 - level) for level in (0.25, 0.5, 0.75)} for name, score in methods.items()}


def titles(app: AppTest) -> list[str]:
    return [one.value.replace("\\", "") for one in app.subheader]


def methods(app: AppTest) -> list[list[str]]:
    return [list(one.value["Method"]) for one in app.dataframe if "Method" in one.value]


@pytest.fixture
def some(results: Path) -> Path:
    write_run(results / "a", lines(falling(knorm=90, random=20)))
    write_run(results / "b", lines(falling(keydiff=90)), model="second")
    write_run(results / "c", lines(falling(tova=90), engine="compact"), model="second", dtype="bfloat16")
    return results


KEYDIFF, KNORM = ["full cache", "keydiff head"], ["full cache", "knorm head", "random head"]
TOVA = ["full cache", "tova head"]


def test_a_board_per_model_benchmark_and_setting(page: Page, some: Path) -> None:
    app = page("overview")
    names = ["second, toy at 64 tokens", "second, toy at 64 tokens", "tiny, toy at 64 tokens"]
    assert [title[: len(name)] for title, name in zip(titles(app), names, strict=True)] == names
    assert len(set(titles(app))) == 3, "boards of one title have what distinguishes them behind it"
    assert sorted(methods(app)) == [KEYDIFF, KNORM, TOVA]


def test_a_view_in_the_address_is_the_view_that_was_chosen(page: Page, some: Path) -> None:
    """That a choice gets into the address is the browser's part: see test_browser."""
    app = page("overview")
    app.selectbox(key="model").set_value("tiny")
    app.multiselect(key="method").set_value(["knorm"])
    app.toggle(key="log").set_value(True)
    app.selectbox(key="level").set_value("0.75").run()
    shared = page("overview", model="tiny", method="knorm", log="true", level="0.75")
    assert shared.toggle(key="log").value is True
    for one in (app, shared):
        assert titles(one) == ["tiny, toy at 64 tokens"] and methods(one) == [["full cache", "knorm head"]]
        assert one.dataframe[0].value["Score"].tolist() == [100.0, 22.5]
    shared.button(key="clear").click().run()
    assert len(titles(shared)) == 3


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ({"saving": "real"}, [TOVA]),
        ({"dtype": "float32"}, [KEYDIFF, KNORM]),
        ({"model": "second"}, [KEYDIFF, TOVA]),
        ({"model": "no such", "method": "none", "level": "9", "boards": "<b>", "log": "maybe"}, [KEYDIFF, KNORM, TOVA]),
    ],
    ids=["saving", "number type", "model", "unknown values"],
)
def test_each_filter_leaves_what_it_says(
    page: Page, some: Path, address: dict[str, str], shown: list[list[str]]
) -> None:
    assert sorted(methods(page("overview", **address))) == shown


def test_filters_that_leave_nothing_say_so(page: Page, some: Path) -> None:
    app = page("overview", model="tiny", dtype="bfloat16")
    assert "No run passes" in app.info[0].value
    app.button(key="clear").click().run()
    assert len(titles(app)) == 3


def test_measured_memory_and_its_absence(page: Page, some: Path) -> None:
    assert page("overview", saving="real").dataframe[0].value["Cache"].tolist()[1:] == ["4.0 MiB"]
    simulated = page("overview", saving="simulated", model="tiny").dataframe[0].value
    assert set(simulated["Cache"].tolist()[1:]) == {"not measured"}


def test_interpolated_scores_are_marked(page: Page, results: Path) -> None:
    write_run(results / "a", lines({"knorm": {0.4: 80, 0.6: 60}}))
    table = page("overview").dataframe[0].value
    assert table["At 50 %"].tolist()[1] == "≈ 70.0" and table["At 75 %"].isna().tolist()[1]


def test_a_curve_without_an_area_says_why(page: Page, results: Path) -> None:
    levels = {"knorm": (0.25, 0.5, 0.9), "random": (0.25, 0.5, 0.75), "tova": (0.5, 0.9)}
    write_run(results / "a", lines({name: dict.fromkeys(own, 50.0) for name, own in levels.items()}))
    app = page("overview")
    areas = app.dataframe[0].value.set_index("Method")["Area"]
    assert areas["knorm head"] > 50 and areas[["random head", "tova head"]].isna().all()
    (said,) = [one.value.replace("\\", "") for one in app.caption if one.value.startswith("No area")]
    assert said == "No area: random head (measured removed ends at 0.750), tova head (under 3 levels)."


def test_every_ranked_variant_has_a_row(page: Page, results: Path) -> None:
    """Two thresholds of one curve were chosen for one removed fraction; the chart has one curve of them."""
    parts = lines({"knorm": {0.5: 60}})
    for tau, score in ((-4.0, 40), (-4.1, 80)):
        parts += lines_of(changed(KVZAP, level=tau), both(score), removed=0.5, requested=0.5)
    write_run(results / "a", parts)
    table = page("overview").dataframe[0].value
    assert list(zip(table["Rank"], table["Method"], table["Score"], strict=True))[1:] == [
        ("1", "kvzap_mlp threshold tau=-4.1", 80),
        ("2", "knorm head", 60),
        ("3", "kvzap_mlp threshold tau=-4", 40),
    ]


def test_a_mean_of_some_subsets_is_no_score(page: Page, results: Path) -> None:
    folder = write_run(results / "a", lines(falling(knorm=90, random=20)))
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    for cell in summary["cells"]:
        cell["of_subsets"] = 13
    edit_json(folder / "summary.json", **summary)
    table = page("overview").dataframe[0].value
    assert "Mean of 2 of 13" in table.columns and "Score" not in table.columns
    assert table["At 50 %"].isna().all()


def test_many_boards_show_the_first_few_and_the_rest_on_demand(page: Page, results: Path) -> None:
    for number in range(10):
        write_run(results / f"run-{number}", lines(falling(knorm=90)), model=f"model {number}")
    app = page("overview")
    for count in (4, 8, 10):
        assert len(titles(app)) == count == len(titles(page("overview", boards=str(count))))
        if count < 10:
            app.button(key="more").click().run()
    assert not [one for one in app.button if one.key == "more"]


def test_the_download_has_every_cell_and_no_formula(some: Path) -> None:
    board = board_of([read(some / "a")], "toy", 64)
    rows = list(csv.DictReader(io.StringIO(csv_of(board))))
    assert [row["variant"] for row in rows] == [cell.variant for cell in board.cells]
    board.cells[3].options = board.cells[4].variant = "=cmd|' /C calc'!A0"
    hostile = list(csv.DictReader(io.StringIO(csv_of(board))))
    assert hostile[3]["options"] == hostile[4]["variant"] == "'=cmd|' /C calc'!A0"
    assert [row["score"] for row in hostile] == [row["score"] for row in rows]


def everywhere(value: Any, text: str) -> Any:
    """A copy of JSON with ``text`` behind each method, in labels too, and behind texts that the format does not fix."""
    words = ("removed", "none", "prefill", "masked", "full", "agnostic", "original", "head", "ok", "stop", "{}", "toy")
    if isinstance(value, dict):
        fixed = ("sample_id", "subset", "context_id", "level_kind", "against", "test", "kind", "status")
        fixed += ("commit", "data_hash", "model_files")
        return {name: one if name in fixed else everywhere(one, text) for name, one in value.items()}
    if isinstance(value, list):
        return [everywhere(one, text) for one in value]
    if not isinstance(value, str) or value in words:
        return value
    named = value.replace("knorm", f"knorm {text}").replace("random", f"random {text}")
    return f"{value} {text}" if named == value else named


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_strangers_opens_and_is_shown_as_text(page: Page, results: Path, text: str) -> None:
    folder = write_run(results / "a", lines(falling(knorm=90, random=20)))
    for name in ("run.json", "summary.json"):
        found = everywhere(json.loads((folder / name).read_text("utf-8")), text)
        (folder / name).write_text(json.dumps(found), encoding="utf-8")
    app = page("overview")
    if any(sign < " " or "\ud800" <= sign <= "\udfff" for sign in text) or len(text) > MOST_NAME:
        assert app.dataframe[0].value["folder"].tolist() == ["a"]  # no name is like that: the folder is not shown
        return
    assert len(app.dataframe[0].value) == 3
    shown = [one.value for kind in (app.subheader, app.caption, app.markdown, app.title) for one in kind]
    head = clean(" ".join(text.split()))[:40]
    assert any(head in one.replace("\\", "").replace("\u2060", "") for one in shown)
    for one in shown:
        assert not re.search(r"(?<!\\)(<script|<img|\]\(|!\[|:red|\$x)", one)
