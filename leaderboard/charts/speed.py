"""Charts of measured memory and speed."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from leaderboard.charts.lines import Hover, Layered, encoding, lines
from leaderboard.charts.theme import CONTROL_STYLE, method_styles
from leaderboard.data.levels import CONTROL
from leaderboard.data.speed import Figure


def speed_chart(table: pd.DataFrame, figure: Figure, methods: Sequence[str]) -> Layered:
    """The figure over the measured removed fraction, a line per curve; the full cache is a dashed rule.

    table     :func:`leaderboard.data.speed.measured`
    methods   all of the board's, see :func:`leaderboard.charts.theme.method_styles`
    """
    pruned, control = table[table["curve"] != CONTROL], table[table["curve"] == CONTROL]
    styles = method_styles(dict.fromkeys(zip(pruned["curve"], pruned["method"], strict=True)), methods)
    hover: Hover = ["variant", "removed", "value", "low", "high", "samples"]
    x = alt.X("removed:Q", title="removed fraction, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title=figure.axis, scale=alt.Scale(zero=True))
    full = alt.Chart(control).mark_rule(strokeDash=CONTROL_STYLE.dash, color=CONTROL_STYLE.colour)
    return alt.layer(
        *lines(pruned, encoding(styles, "method", "curve"), x, y, hover, intervals=False),
        full.encode(y="value:Q", tooltip=hover),
    ).properties(height=300)
