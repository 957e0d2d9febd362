"""Tokens as a chart: letters in lines, whatever they hold."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pytest
from rich.cells import cell_len

from leaderboard.charts.theme import LIGHT
from leaderboard.charts.tokens import MOST_TOKENS, RETURN, head_chart, head_table, layout, token_chart, token_table
from tests.leaderboard.data.test_sample_view import HOSTILE


@pytest.mark.parametrize("seed", range(20))
def test_tokens_stand_in_lines_in_their_order(seed: int) -> None:
    draw = random.Random(seed)
    width = draw.randint(4, 30)
    tokens = ["".join(draw.choices("ab \n漢é\u0301", k=draw.randint(0, 9))) for _ in range(400)]
    spots = layout(tokens, width)
    assert len(spots) == len(tokens)
    for spot in spots:
        assert 0 <= spot.start < spot.stop <= width and spot.stop - spot.start == max(1, cell_len(spot.text))
    for before, after in pairwise(spots):
        same_line = after.line == before.line and after.start == before.stop
        next_line = after.line == before.line + 1 and after.start == 0
        assert same_line or next_line
        assert next_line if RETURN in before.text else True
        if next_line and RETURN not in before.text:  # a line ends only where the next token has no room
            assert before.stop + (after.stop - after.start) > width


def test_texts_are_kept_but_for_marks_that_nobody_sees() -> None:
    shown = [spot.text for spot in layout(["a b", "\n\n", "\t", "\x07", "\u202e!", ""])]
    assert shown == ["a b", RETURN * 2, "→", "\ufffd", "\ufffd!", ""]
    for letter in ("x", "漢"):
        (wide,) = layout([letter * 10**6], 20)
        assert cell_len(wide.text) == 20 and wide.text.endswith("…")


def test_a_table_has_the_share_of_each_token() -> None:
    share = np.linspace(0, 1, MOST_TOKENS + 7)
    table = token_table(share, None, prefix=3, start=MOST_TOKENS)
    assert table["token"].tolist() == list(range(MOST_TOKENS, MOST_TOKENS + 7))
    assert table["kept"].tolist() == share[MOST_TOKENS:].tolist()
    first = token_table(share, None, prefix=3)
    assert first["part"].value_counts()["chat template"] == 3 and len(first) == MOST_TOKENS


def test_charts_hold_tokens_as_data_alone() -> None:
    drawing = token_chart(token_table(np.ones(6), list(HOSTILE), prefix=0), LIGHT).to_dict()
    texts = {row["text"] for rows in drawing.pop("datasets").values() for row in rows}
    assert HOSTILE[0] in texts and HOSTILE[1] in texts
    assert "alert" not in json.dumps(drawing)  # nothing of a token is in a mark, a title or a formula


def test_the_map_has_a_cell_per_head() -> None:
    table = head_table(np.array([[0.25, 1.0], [0.0, 0.5]]))
    assert list(table.itertuples(index=False, name=None)) == [(0, 0, 0.25), (0, 1, 1.0), (1, 0, 0.0), (1, 1, 0.5)]
    for heads, step, layers in ((1, 46, 2), (3, 46, 2), (32, 17, 1)):  # with few heads the figures stand in the cells
        drawing = head_chart(head_table(np.ones((2, heads)))).to_dict()
        # a width of the whole chart would be shared with its axis and legend, which leaves five pixels per head
        assert drawing["width"] == {"step": step} and len(drawing["layer"]) == layers


def test_no_tokens_make_a_chart_too() -> None:
    assert token_chart(token_table(np.ones(0), (), prefix=0), LIGHT).to_dict()
    assert head_chart(head_table(np.ones((0, 0)))).to_dict()
