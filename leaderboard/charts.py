"""Charts from cells. Every line has its own marker and dash, so that none needs its colour to be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from harness.ranking import curve_name

Cell = dict[str, Any]

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])


def points(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row an overall cell that was measured: ``curve, removed, factor, score, low, high, ...`` for hovering."""
    rows = [
        {
            "curve": curve_name(cell) if cell["level_kind"] != "none" else "full cache",
            "variant": cell["variant"],
            "removed": cell["removed_mean"],
            "factor": 1 / (1 - cell["removed_mean"]),
            "score": cell["score"],
            "low": cell["low"],
            "high": cell["high"],
            "samples": cell["n"],
            "hollow": bool(cell["bound_by"]),
        }
        for cell in cells
        if cell["subset"] is None
        and cell["score"] is not None
        and (cell["removed_mean"] or 0) < 1
        and (cell["level_kind"] == "none" or cell["removed_mean"] is not None)
        for cell in [{**cell, "removed_mean": cell["removed_mean"] or 0.0}]
    ]
    return pd.DataFrame(
        rows, columns=["curve", "variant", "removed", "factor", "score", "low", "high", "samples", "hollow"]
    )


def curve_chart(cells: Sequence[Cell], log: bool) -> alt.LayerChart | alt.FacetChart:
    """Score over measured removed fraction (``log``: over the compression factor, on a log axis), a line a curve."""
    table = points(cells)
    control = table[table["curve"] == "full cache"]
    pruned = table[table["curve"] != "full cache"]
    names = list(dict.fromkeys(pruned["curve"]))
    x = (
        alt.X("factor:Q", title="compression factor 1 / (1 - removed)", scale=alt.Scale(type="log", base=2))
        if log
        else alt.X("removed:Q", title="removed fraction of the KV cache, measured", scale=alt.Scale(domain=[0, 1]))
    )
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 100]))
    styles = {
        "color": alt.Color("curve:N", title="method", scale=alt.Scale(domain=names, scheme="tableau20")),
        "strokeDash": alt.StrokeDash(
            "curve:N", scale=alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in range(len(names))])
        ),
    }
    shape = alt.Shape(
        "curve:N", scale=alt.Scale(domain=names, range=[SHAPES[i % len(SHAPES)] for i in range(len(names))])
    )
    hover = ["variant", "score", "low", "high", "removed", "factor", "samples"]
    base = alt.Chart(pruned)
    return alt.layer(
        base.mark_area(opacity=0.12).encode(x=x, y="low:Q", y2="high:Q", color=styles["color"]),
        base.mark_line().encode(x=x, y=y, **styles),
        base.mark_point(size=60).encode(x=x, y=y, shape=shape, color=styles["color"], tooltip=hover),
        alt.Chart(control).mark_rule(strokeDash=[4, 4]).encode(y="score:Q", tooltip=["variant", "score", "samples"]),
    ).properties(height=420)
