"""Tables of coloured numbers; each can be read in grey, since the numbers stand in the cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from leaderboard.charts.lines import Layered
from leaderboard.charts.theme import Theme

#: pixels of a column, of a row, and of the names of rows
CELL, HEIGHT, NAMES = 58, 25, 250


def heatmap(
    table: pd.DataFrame,
    colour: alt.Color,
    hover: Sequence[alt.Tooltip],
    rows: Sequence[str],
    columns: Sequence[str],
    theme: Theme,
    width: int = CELL,
    heads: Sequence[str] = (),
) -> Layered:
    """Rectangles with a number on them, a column of ``width`` pixels each.

    table    ``row``, ``column`` (where a rectangle stands), ``text``, ``fill`` (``colour``, ``grey`` or ``none``) and
             ``deep`` (its colour asks for bright text)
    rows     all names of rows, and of columns, in order
    heads    those of ``rows`` that head others: bold, without a rectangle
    """
    bare: dict[str, Any] = {"title": None, "labelOverlap": False, "ticks": False, "domain": False}
    x = alt.X(
        "column:N",
        sort=list(columns),
        scale=alt.Scale(domain=list(columns), padding=0),
        axis=alt.Axis(orient="top", labelAngle=-45, labelLimit=150, **bare),
    )
    on_heads = f"indexof({json.dumps(list(heads))}, datum.label) >= 0"
    y = alt.Y(
        "row:N",
        sort=list(rows),
        scale=alt.Scale(domain=list(rows), padding=0),
        axis=alt.Axis(
            labelLimit=NAMES,
            minExtent=NAMES,
            maxExtent=NAMES,
            labelFontWeight=_either(on_heads, "bold", "normal"),
            labelColor=_either(on_heads, theme.ink, theme.quiet),
            **bare,
        ),
    )
    base = alt.Chart(table).encode(x=x, y=y, tooltip=list(hover))
    box: dict[str, Any] = {"stroke": theme.plain, "strokeWidth": 2, "cornerRadius": 3}
    inks = {
        theme.bright: "datum.deep",
        theme.quiet: "datum.fill == 'grey'",
        theme.ink: "!datum.deep && datum.fill != 'grey'",
    }
    texts = [
        base.transform_filter(test).mark_text(fontSize=11, baseline="middle", color=ink).encode(text="text:N")
        for ink, test in inks.items()
    ]
    return alt.layer(
        base.transform_filter("datum.fill == 'grey'").mark_rect(color=theme.grey, **box),
        base.transform_filter("datum.fill == 'colour'").mark_rect(invalid=None, **box).encode(color=colour),
        *texts,
    ).properties(width=alt.Step(width), height=alt.Step(HEIGHT))


def scale_of(title: str, domain: Sequence[float], colours: Sequence[str], form: str, **scale: Any) -> alt.Color:
    """The colour of the table's ``value``, with a gradient above the chart."""
    return alt.Color(
        "value:Q",
        title=title,
        scale=alt.Scale(domain=list(domain), range=list(colours), interpolate="rgb", **scale),
        legend=alt.Legend(orient="top", gradientLength=220, gradientThickness=10, titleLimit=300, format=form),
    )


def _either(test: str, one: str, other: str) -> Any:
    return {"condition": {"test": test, "value": one}, "value": other}
