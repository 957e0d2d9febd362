"""Lines with markers and intervals, as most charts of the board have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from leaderboard.charts.theme import Style

#: what Altair gives for several layers, side by side or not
Layered = alt.LayerChart | alt.FacetChart
Hover = Sequence[str | alt.Tooltip]


class Encoding(NamedTuple):
    """How the rows of a table are distinguished by the names in one of its columns."""

    color: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash

    def without_legend(self) -> Encoding:
        return Encoding(self.color.legend(None), self.shape.legend(None), self.dash.legend(None))


def encoding(styles: Mapping[str, Style], title: str, field: str = "name", **legend: Any) -> Encoding:
    """``styles`` by the names in ``field``; the legend lists them in their order."""

    def scale(values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=list(styles), range=list(values))

    column, some = f"{field}:N", styles.values()
    return Encoding(
        alt.Color(
            column,
            title=title,
            scale=scale([style.colour for style in some]),
            legend=alt.Legend(labelLimit=320, symbolSize=90, symbolOpacity=1, symbolStrokeWidth=2, **legend),
        ),
        alt.Shape(column, title=title, scale=scale([style.shape for style in some])),
        alt.StrokeDash(column, title=title, scale=scale([style.dash for style in some])),
    )


def tips(form: str, *names: str) -> list[alt.Tooltip]:
    """Numbers to show on hovering, all of one format."""
    return [alt.Tooltip(f"{name}:Q", format=form) for name in names]


def lines(
    table: pd.DataFrame, by: Encoding, x: alt.X, y: alt.Y, hover: Hover, intervals: bool = True
) -> list[alt.Chart]:
    """The layers of a line chart: ``low`` to ``high`` as bars (unless ``intervals`` is off), lines, markers."""
    base = alt.Chart(table)
    bars = base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=by.color)
    line = base.mark_line().encode(x=x, y=y, color=by.color, strokeDash=by.dash)
    points = base.mark_point(size=70, filled=True).encode(x=x, y=y, color=by.color, shape=by.shape, tooltip=list(hover))
    return [bars, line, points] if intervals else [line, points]
