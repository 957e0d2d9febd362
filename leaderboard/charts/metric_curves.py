"""Charts of metrics beside the score, such as KL divergence, over the removed fraction."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from harness.results.schema import Metric
from leaderboard.charts.lines import Hover, Layered, encoding, lines, tips
from leaderboard.charts.theme import method_styles
from leaderboard.data.metrics import SCORE


def metric_chart(table: pd.DataFrame, metric: Metric, methods: Sequence[str]) -> Layered:
    """One metric over the measured removed fraction; on a log axis there is no place for 0.

    table     :func:`leaderboard.data.metrics.metric_table`
    methods   all of the board's, see :func:`leaderboard.charts.theme.method_styles`
    """
    styles = method_styles(dict.fromkeys(zip(table["name"], table["method"], strict=True)), methods)
    own = table[(table["metric"] == metric.name) & ((table["value"] > 0) | (not metric.log_scale))].copy()
    scale = alt.Scale(domain=[0, 100]) if metric is SCORE else alt.Scale(zero=True)
    if metric.log_scale:
        own["low"] = own["low"].where(own["low"] > 0, own["value"])
        scale = alt.Scale(type="log", nice=True)
    axis = alt.Axis(tickCount=6, format="%") if metric.format.endswith("%") else alt.Axis(tickCount=6)
    x = alt.X("removed:Q", title="removed fraction, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title=metric.description or metric.title, scale=scale, axis=axis)
    hover: Hover = ["variant", *tips(".4g", "value", "low", "high", "removed"), "n"]
    return alt.layer(*lines(own, encoding(styles, "method"), x, y, hover)).properties(height=300)
