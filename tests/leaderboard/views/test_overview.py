"""The overview through Streamlit's own test: filters, address, table, download, and text of strangers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from harness.analysis.boards import board_of
from harness.analysis.run_reader import read
from harness.config.variants import Variant
from harness.safe_text import clean
from leaderboard.escaping import plain
from leaderboard.views.layout import RESULTS
from leaderboard.views.overview_table import csv_of
from tests.harness.made_runs import FULL, KVZAP, both, changed, edit_json, lines_of, write_run

#: longest name that a run folder may have in its records
MOST_NAME = 1_000
PAGE = Path(__file__).parents[3] / "leaderboard" / "views" / "overview.py"
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![picture](https://evil.example/x.png)",
    "[click](https://evil.example)",
    "https://evil.example/path",
    ":red[painted] :material/delete: :smile:",
    "$x^2$ $$y$$",
    "**bold** _slanted_ `code` ~~gone~~",
    "# title",
    "| a | b |",
    "\u202eright to left\u202c",
    "null\x00byte \x1b[31m \x07",
    "half \ud800 character",
    "long " * 400,
    "=HYPERLINK(1)",
    "{{7*7}} %s ${x} &amp; &#60;b&#62;",
)


@pytest.fixture(autouse=True)
def _results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RESULTS, str(tmp_path / "results"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(path: Path, methods: dict[str, float], **changes: Any) -> Path:
    engine = changes.pop("engine", "masked")
    lines = lines_of(changed(FULL, engine=engine), both(100), physical_bytes=8 << 20 if engine == "compact" else None)
    for method, score in methods.items():
        for level in (0.25, 0.5, 0.75):
            variant = Variant(method, "head", "removed", level, engine=engine)
            held = 4 << 20 if engine == "compact" else None
            lines += lines_of(variant, both(score * (1 - level)), physical_bytes=held)
    return write_run(path, lines, **changes)


def opened(**address: str) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=300)
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception and not app.error
    return app


def titles(app: AppTest) -> list[str]:
    return [one.value.replace("\\", "") for one in app.subheader]


def methods(app: AppTest, place: int = 0) -> list[str]:
    return list(app.dataframe[place].value["Method"])


@pytest.fixture
def some(tmp_path: Path) -> Path:
    run(tmp_path / "results" / "a", {"knorm": 90, "random": 20})
    run(tmp_path / "results" / "b", {"keydiff": 90}, model="second")
    run(tmp_path / "results" / "c", {"tova": 90}, model="second", dtype="bfloat16", engine="compact")
    return tmp_path / "results"


def test_a_board_a_model_benchmark_and_setting(some: Path) -> None:
    app = opened()
    names = ["second, toy at 64 tokens", "second, toy at 64 tokens", "tiny, toy at 64 tokens"]
    assert [title[: len(name)] for title, name in zip(titles(app), names, strict=True)] == names
    assert len(set(titles(app))) == 3, "boards of one title have what tells them apart behind it"
    assert sorted(sorted(methods(app, place)) for place in range(3)) == [
        ["full cache", "keydiff head"],
        ["full cache", "knorm head", "random head"],
        ["full cache", "tova head"],
    ]


def test_a_view_in_the_address_is_the_view_that_was_chosen(some: Path) -> None:
    """That a choice gets into the address is the browser's part: see test_browser."""
    app = opened()
    app.selectbox(key="model").set_value("tiny")
    app.multiselect(key="method").set_value(["knorm"])
    app.toggle(key="log").set_value(True)
    app.selectbox(key="level").set_value("0.75").run()
    assert titles(app) == ["tiny, toy at 64 tokens"] and methods(app) == ["full cache", "knorm head"]

    shared = opened(model="tiny", method="knorm", log="true", level="0.75")
    assert titles(shared) == ["tiny, toy at 64 tokens"] and methods(shared) == ["full cache", "knorm head"]
    assert shared.toggle(key="log").value is True
    assert shared.dataframe[0].value["Score"].tolist() == app.dataframe[0].value["Score"].tolist() == [100.0, 22.5]

    shared.button(key="clear").click().run()
    assert len(titles(shared)) == 3


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("saving", "real", [["full cache", "tova head"]]),
        ("dtype", "float32", [["full cache", "keydiff head"], ["full cache", "knorm head", "random head"]]),
        ("model", "second", [["full cache", "tova head"], ["full cache", "keydiff head"]]),
    ],
)
def test_each_filter_leaves_what_it_says(some: Path, key: str, value: str, shown: list[list[str]]) -> None:
    app = opened(**{key: value})
    found = [methods(app, place) for place in range(len(titles(app)))]
    assert sorted(found) == sorted(shown)


def test_filters_that_leave_nothing_say_so(some: Path) -> None:
    app = opened(model="tiny", dtype="bfloat16")
    assert "No run passes" in app.info[0].value
    app.button(key="clear").click().run()
    assert len(titles(app)) == 3


def test_unknown_values_in_the_address_are_passed_over(some: Path) -> None:
    app = opened(model="no such", method="none", level="9", boards="<b>", log="maybe", board="x")
    assert len(titles(app)) == 3


def test_measured_memory_and_its_absence(some: Path) -> None:
    app = opened(saving="real")
    assert app.dataframe[0].value["Cache"].tolist()[1:] == ["4.0 MiB"]
    app = opened(saving="simulated", model="tiny")
    assert set(app.dataframe[0].value["Cache"].tolist()[1:]) == {"not measured"}


def test_interpolated_scores_are_marked(tmp_path: Path) -> None:
    lines = lines_of(FULL, both(100))
    for level, score in ((0.4, 80), (0.6, 60)):
        lines += lines_of(Variant("knorm", "head", "removed", level), both(score))
    write_run(tmp_path / "results" / "a", lines)
    table = opened().dataframe[0].value
    assert table["At 50 %"].tolist()[1] == "≈ 70.0" and table["At 75 %"].isna().tolist()[1]


def test_a_curve_without_an_area_says_why(tmp_path: Path) -> None:
    lines = lines_of(FULL, both(100))
    for method, levels in (("knorm", (0.25, 0.5, 0.9)), ("random", (0.25, 0.5, 0.75)), ("tova", (0.5, 0.9))):
        for level in levels:
            lines += lines_of(Variant(method, "head", "removed", level), both(50))
    write_run(tmp_path / "results" / "a", lines)
    app = opened()
    areas = dict(zip(methods(app), app.dataframe[0].value["Area"], strict=True))
    assert areas["knorm head"] > 50 and areas["random head"] != areas["random head"] != areas["tova head"]
    (said,) = [one.value for one in app.caption if one.value.startswith("No area")]
    assert said.replace("\\", "") == (
        "No area: random head (measured removed ends at 0.750), tova head (under 3 levels)."
    )


def test_every_ranked_variant_has_a_row(tmp_path: Path) -> None:
    """Two thresholds of one curve were chosen for one removed fraction; the chart has one curve of them."""
    parts = [lines_of(FULL, both(100)), lines_of(Variant("knorm", "head", "removed", 0.5), both(60))]
    for tau, score in ((-4.0, 40), (-4.1, 80)):
        parts.append(lines_of(changed(KVZAP, level=tau), both(score), removed=0.5, requested=0.5))
    write_run(tmp_path / "results" / "a", [line for part in parts for line in part])
    table = opened().dataframe[0].value
    rows = list(zip(table["Rank"], table["Method"], table["Score"], strict=True))[1:]
    assert rows == [
        ("1", "kvzap_mlp threshold tau=-4.1", 80),
        ("2", "knorm head", 60),
        ("3", "kvzap_mlp threshold tau=-4", 40),
    ]


def test_a_mean_of_some_subsets_is_no_score(tmp_path: Path) -> None:
    folder = run(tmp_path / "results" / "a", {"knorm": 90, "random": 20})
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    cells = [{**cell, "of_subsets": 13} if cell["subset"] is None else cell for cell in summary["cells"]]
    edit_json(folder / "summary.json", cells=cells)
    table = opened().dataframe[0].value
    assert "Mean of 2 of 13" in table.columns and "Score" not in table.columns
    assert table["At 50 %"].isna().all()


def test_many_boards_show_the_first_few_and_the_rest_on_demand(tmp_path: Path) -> None:
    for number in range(10):
        run(tmp_path / "results" / f"run-{number}", {"knorm": 90}, model=f"model {number}")
    app = opened()
    assert len(titles(app)) == 4
    app.button(key="more").click().run()
    assert len(titles(app)) == 8
    assert len(titles(opened(boards="8"))) == 8
    app.button(key="more").click().run()
    assert len(titles(app)) == 10 and not [one for one in app.button if one.key == "more"]


def test_the_download_has_every_cell_and_no_formula(some: Path) -> None:
    board = board_of([read(some / "a")], "toy", 64)
    rows = list(csv.DictReader(io.StringIO(csv_of(board))))
    assert len(rows) == len(board.cells) and {row["variant"] for row in rows} == {c["variant"] for c in board.cells}
    board.cells[3]["options"] = board.cells[4]["variant"] = "=cmd|' /C calc'!A0"
    changed = list(csv.DictReader(io.StringIO(csv_of(board))))
    assert changed[3]["options"] == changed[4]["variant"] == "'=cmd|' /C calc'!A0"
    assert [row["score"] for row in changed] == [row["score"] for row in rows]


def everywhere(value: Any, text: str) -> Any:
    """A copy of JSON with ``text`` after each text that is no word of the format."""
    kept = ("removed", "none", "prefill", "masked", "full", "agnostic", "original", "head", "ok", "stop", "{}", "toy")
    if isinstance(value, dict):
        fixed = ("sample_id", "subset", "context_id", "level_kind", "against", "test", "kind", "status")
        return {name: one if name in fixed else everywhere(one, text) for name, one in value.items()}
    if isinstance(value, list):
        return [everywhere(one, text) for one in value]
    return f"{value} {text}" if isinstance(value, str) and value not in kept else value


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(one)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_strangers_opens_and_is_shown_as_text(tmp_path: Path, text: str) -> None:
    folder = run(tmp_path / "results" / "a", {"knorm": 90, "random": 20})
    edit_json(folder / "run.json", hardware="h")
    for name in ("run.json", "summary.json"):
        found = everywhere(json.loads((folder / name).read_text("utf-8")), text)
        (folder / name).write_text(json.dumps(found), encoding="utf-8")
    app = opened()
    if any(sign < " " or "\ud800" <= sign <= "\udfff" for sign in text) or len(text) > MOST_NAME:
        assert app.dataframe[0].value["folder"].tolist() == ["a"]  # no name is like that: the folder is not shown
        return
    assert len(app.dataframe[0].value) == 3
    shown = [one.value for kind in (app.subheader, app.caption, app.markdown, app.title) for one in kind]
    head = clean(" ".join(text.split()))[:40]
    assert any(head in one.replace("\\", "").replace("\u2060", "") for one in shown)
    for one in shown:
        assert not re.search(r"(?<!\\)(<script|<img|\]\(|!\[|:red|\$x)", one)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_plain_text_has_no_mark_left(text: str) -> None:
    shown = plain(text)
    shown.encode()  # a half character cannot be sent
    for place, mark in enumerate(shown):
        if mark in "`*_{}[]()<>#!|$~:&":
            assert place and shown[place - 1] == "\\", shown
    assert len(shown) < 700 and "\x00" not in shown and "\u202e" not in shown


def test_clean_leaves_ordinary_text_alone() -> None:
    value = {"a": ["Ünïcödé 漢字 עברית 👍🏽 ≈", "two\nlines\t", 1, None, 0.5, True]}
    assert clean(value) == value
