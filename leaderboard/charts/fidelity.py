"""Charts of fidelity: KL divergence from the full cache, agreement and perplexity over the removed fraction."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from leaderboard.charts.lines import Hover, Layered, encoding, lines, tips
from leaderboard.charts.theme import method_styles
from leaderboard.data.fidelity import Figure


def fidelity_chart(table: pd.DataFrame, figure: Figure, methods: Sequence[str]) -> Layered:
    """One figure over the measured removed fraction; on a log axis there is no place for 0.

    table     :func:`leaderboard.data.fidelity.fidelity`
    methods   all of the board's, see :func:`leaderboard.charts.theme.method_styles`
    """
    styles = method_styles(dict.fromkeys(zip(table["name"], table["method"], strict=True)), methods)
    own = table[(table["metric"] == figure.metric) & ((table["value"] > 0) | (not figure.log))].copy()
    if figure.log:
        own["low"] = own["low"].where(own["low"] > 0, own["value"])
    scale = alt.Scale(type="log", nice=True) if figure.log else alt.Scale(domain=[0, 100])
    x = alt.X("removed:Q", title="removed fraction, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title=figure.title, scale=scale, axis=alt.Axis(tickCount=6))
    hover: Hover = [
        "variant",
        *tips(".4g", "value", "low", "high", "removed"),
        "n",
    ]
    return alt.layer(*lines(own, encoding(styles, "method"), x, y, hover)).properties(height=300)
