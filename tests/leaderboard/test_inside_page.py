"""Look inside: a page of letters and rectangles, whatever the files hold."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from leaderboard.charts.tokens import (
    MOST_TOKENS,
    RETURN,
    columns,
    head_chart,
    head_table,
    layout,
    token_chart,
    token_table,
)
from leaderboard.data.sample_diff import differing, side_by_side, variants_of
from leaderboard.views.inside import jump
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, RANDOM, lines_of, write_run
from tests.leaderboard.test_inside import SAMPLE, masks_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "leaderboard" / "views" / "inside.py"
#: the six tokens behind the template's two
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "$$x$$",
    "\u202eoops",
    "\0\n",
)


def test_tokens_stand_in_lines_in_their_order() -> None:
    draw = random.Random(0)
    for _ in range(200):
        width = draw.randint(4, 30)
        tokens = ["".join(draw.choices("ab \n漢é\u0301", k=draw.randint(0, 9))) for _ in range(40)]
        spots = layout(tokens, width)
        assert len(spots) == len(tokens)
        for spot in spots:
            assert 0 <= spot.start < spot.stop <= width and spot.stop - spot.start == max(1, columns(spot.text))
        for before, after in pairwise(spots):
            same_line = after.line == before.line and after.start == before.stop
            next_line = after.line == before.line + 1 and after.start == 0
            assert same_line or next_line
            assert next_line if RETURN in before.text else True
            if next_line and RETURN not in before.text:  # a line ends only where the next token has no room
                assert before.stop + (after.stop - after.start) > width


def test_texts_are_kept_but_for_marks_that_nobody_sees() -> None:
    assert [spot.text for spot in layout(["a b", "\n\n", "\t", "\x07", "\u202e!", ""])] == [
        "a b",
        RETURN * 2,
        "→",
        "\ufffd",
        "\ufffd!",
        "",
    ]
    (wide,) = layout(["x" * 10**6], 20)
    assert columns(wide.text) == 20 and wide.text.endswith("…")


def test_a_table_has_the_share_of_each_token() -> None:
    share = np.linspace(0, 1, MOST_TOKENS + 7)
    table = token_table(share, None, prefix=3, start=MOST_TOKENS)
    assert table["token"].tolist() == list(range(MOST_TOKENS, MOST_TOKENS + 7))
    assert table["kept"].tolist() == share[MOST_TOKENS:].tolist()
    assert token_table(share, None, prefix=3)["part"].value_counts()["chat template"] == 3
    assert len(token_table(share, None, prefix=3)) == MOST_TOKENS


def test_charts_hold_tokens_as_data_alone() -> None:
    table = token_table(np.ones(6), list(HOSTILE), prefix=0)
    spec = token_chart(table).to_dict()
    texts = {row["text"] for rows in spec.pop("datasets").values() for row in rows}
    assert HOSTILE[0] in texts and HOSTILE[1] in texts
    assert "alert" not in json.dumps(spec)  # nothing of a token is in a mark, a title or a formula
    heads = head_chart(head_table(np.array([[0.25, 1.0], [0.0, 0.5]]))).to_dict()
    rows = [row for some in heads["datasets"].values() for row in some]
    assert {(row["layer"], row["head"]): row["kept"] for row in rows} == {
        (0, 0): 0.25,
        (0, 1): 1,
        (1, 0): 0,
        (1, 1): 0.5,
    }


def test_no_tokens_make_a_chart_too() -> None:
    assert token_chart(token_table(np.ones(0), (), prefix=0)).to_dict()
    assert head_chart(head_table(np.ones((0, 0)))).to_dict()


def test_cells_of_the_map_have_a_width_of_their_own() -> None:
    """A width of the whole chart is shared with its axis and legend, which left five pixels for a head."""
    for heads, step in ((1, 46), (3, 46), (32, 17)):
        assert head_chart(head_table(np.ones((2, heads)))).to_dict()["width"] == {"step": step}


def test_differences_are_those_of_brute_force() -> None:
    full = lines_of(FULL, {"red": [100.0, 50.0, 0.0], "blue": [None, 10.0]})
    knorm = lines_of(KNORM, {"red": [40.0, 50.0, 30.0], "blue": [10.0, 10.0]})
    pairs = side_by_side(full + knorm, "full", "knorm head 0.5")
    assert len(pairs) == 5
    assert [(p.sample_id, p.change) for p in differing(pairs)] == [
        ("toy/red/64/0/0", -60.0),
        ("toy/red/64/0/2", 30.0),
        ("toy/blue/64/0/0", None),
    ]
    assert variants_of(full + knorm) == ("full", ["knorm head 0.5"])


def test_rollouts_are_averaged_before_they_are_compared() -> None:
    full = [line.model_copy(update={"rollout": n}) for n in (0, 1) for line in lines_of(FULL, {"red": [100.0 * n]})]
    assert side_by_side(full + lines_of(KNORM, {"red": [50.0]}), "full", "knorm head 0.5")[0].change == 0


def test_a_chosen_row_shows_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"differences": SimpleNamespace(selection=SimpleNamespace(rows=[1])), "sample": "a"}
    monkeypatch.setattr(st, "session_state", state)
    jump(["a", "b"])
    assert state["sample"] == "b"
    state["differences"].selection.rows = [7]
    jump(["a", "b"])
    assert state["sample"] == "b"


def _run(path: Path, prediction: str = "an answer") -> Path:
    lines = lines_of(FULL, {"red": [100.0, 50.0], "blue": [0.0]}, kept_pairs=48, cached_pairs=48)
    lines += lines_of(KNORM, {"red": [40.0, 50.0], "blue": [10.0]}, kept_pairs=28, prediction=prediction)
    return write_run(path / "run", lines + lines_of(RANDOM, {"red": [0.0, 0.0], "blue": [0.0]}))


def _charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("vega_lite_chart")]


def test_a_sample_with_masks_is_shown_with_answers_and_differences(page: Any, tmp_path: Path) -> None:
    app = page(masks_of(_run(tmp_path), tokens=["<u>", "\n", *"abcdef"]))
    assert app.selectbox(key="sample").value == SAMPLE
    assert "an answer" in [block.value for block in app.code]
    table = app.dataframe[0].value
    assert table["change"].tolist() == [-60.0, 10.0] and table["masks"].tolist() == [True, False]
    assert "other scores on 2 of 3 samples, 1 better and 1 worse" in " ".join(c.value for c in app.caption).replace(
        "\\", ""
    )
    assert len(_charts(app)) == 2
    app.selectbox(key="other").set_value("random head 0.5").run()
    assert not app.exception
    assert len(_charts(app)) == 2  # random's mask is not stored
    assert any("no mask" in warning.value for warning in app.warning)
    assert app.dataframe[0].value["change"].tolist() == [10.0, 40.0, 50.0]  # now against random


def test_hostile_texts_are_letters(page: Any, tmp_path: Path) -> None:
    folder = masks_of(_run(tmp_path, "<script>alert(1)</script>"), tokens=["<u>", "</u>", *HOSTILE])
    app = page(folder)
    assert len(_charts(app)) == 2
    assert not app.get("html") and not app.get("iframe")
    for one in [*app.markdown, *app.caption, *app.info, *app.warning, *app.error]:
        assert "<script" not in one.value and "onerror" not in one.value
        assert not getattr(one, "allow_html", False)
    assert any("<script>" in block.value for block in app.code)  # an answer, letter by letter


def test_texts_that_may_not_be_shipped_leave_positions_alone(page: Any, tmp_path: Path) -> None:
    app = page(masks_of(_run(tmp_path), lengths=[1] * 8))
    assert any("positions in the context" in info.value for info in app.info)
    assert len(_charts(app)) == 2


def test_without_masks_the_page_says_how_to_store_them(page: Any) -> None:
    app = page(COMMITTED)
    assert any("--store-masks" in block.value for block in app.code)
    assert not _charts(app)
    assert len(app.dataframe[0].value) > 0  # answers and differences are there all the same


def test_a_damaged_mask_file_is_told_on_the_page(page: Any, tmp_path: Path) -> None:
    folder = masks_of(_run(tmp_path), tokens=list("abcdefgh"))
    (file,) = (folder / "masks").iterdir()
    file.write_bytes(b"PK no zip")
    app = page(folder)
    assert any("cannot be read as stored masks" in error.value.replace("\\", "") for error in app.error)


def test_lost_lines_are_told_on_the_page(page: Any, tmp_path: Path) -> None:
    folder = _run(tmp_path)
    samples = folder / "samples.jsonl"
    samples.write_text("".join(samples.read_text("utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    app = page(folder)
    told = [error.value for error in app.error]
    told += [why for frame in app.dataframe if "why" in frame.value for why in frame.value["why"]]
    assert any("lines that the run had" in text for text in told), told
