"""The chart of pass@k: a row per variant, a marker per k."""

from __future__ import annotations

import altair as alt
import pandas as pd

from leaderboard.charts.lines import Layered, encoding
from leaderboard.charts.theme import Theme, category_styles


def pass_chart(table: pd.DataFrame, theme: Theme) -> Layered:
    """pass@1 filled with its standard error, the other pass@k hollow.

    table   :func:`leaderboard.data.pass_at_k.pass_table`
    """
    kinds = [name for name in table.columns if name.startswith("pass@")]
    order = list(table["variant"])
    ids = ["variant", "level", "low", "high", "problems", "rollouts"]
    long = table.melt(ids, kinds, "name", "value").dropna(subset="value")
    y = alt.Y("variant:N", sort=order, title=None, scale=alt.Scale(domain=order), axis=alt.Axis(labelLimit=320))
    x = alt.X("value:Q", title="per cent", scale=alt.Scale(domain=[0, 100]))
    hover = ["variant", "name", alt.Tooltip("value:Q", format=".1f"), "low", "high", "problems", "rollouts"]
    by = encoding(category_styles(kinds), "figure")
    filled = alt.condition("datum.name == 'pass@1'", alt.value(1.0), alt.value(0.0))
    errors = alt.Chart(table.dropna(subset=["low", "high"])).mark_rule(strokeWidth=2, color=theme.quiet)
    points = alt.Chart(long).mark_point(size=90, strokeWidth=2)
    return alt.layer(
        errors.encode(y=y, x=alt.X("low:Q"), x2="high:Q"),
        points.encode(x=x, y=y, color=by.color, shape=by.shape, fillOpacity=filled, tooltip=hover),
    ).properties(height=alt.Step(26))
