"""Charts of what thresholds remove, prompt by prompt, and of budgets on the same scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.ranking import curve_name, level_of
from leaderboard.charts.theme import Look, colours, dashes, shapes

Cell = dict[str, Any]
REMOVED = "removed fraction of the KV cache"
#: thresholds this near, as a share of the axis, are in one place
NEAR = 0.02
#: rows of a strip's dots beside each other
JITTER = 7


def spread_chart(
    table: pd.DataFrame, boxes: pd.DataFrame, by: str, title: str, look: Look
) -> alt.LayerChart | alt.FacetChart:
    """A row a benchmark (or subset): a dot a prompt, the middle half as a box, the median as a tick, the ends.

    table   ``prompt, removed`` and the column ``by``
    boxes   :func:`leaderboard.data.thresholds.spread` of it
    """
    names = list(boxes["name"])
    dots = table.rename(columns={by: "name"}).copy()
    dots["jitter"] = [(place * 3) % JITTER for place in range(len(dots))]
    y = alt.Y("name:N", sort=names, title=None, scale=alt.Scale(domain=names), axis=alt.Axis(labelLimit=260))
    x = alt.X("removed:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".1f", tickCount=10))
    base = alt.Chart(boxes).encode(y=y)
    told = [
        "name",
        "prompts",
        *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("mean", "min", "q25", "median", "q75", "max")),
    ]
    tint = look.diverging[2]
    return alt.layer(
        base.mark_rule(color=look.quiet).encode(x=alt.X("min:Q"), x2="max:Q"),
        base.mark_bar(height=22, fillOpacity=0.22, color=tint, stroke=tint, cornerRadius=3).encode(
            x="q25:Q", x2="q75:Q", tooltip=told
        ),
        alt.Chart(dots)
        .mark_circle(size=26, opacity=0.65, color=tint)
        .encode(
            x=x,
            y=y,
            yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-JITTER, 2 * JITTER - 1])),
            tooltip=["prompt", alt.Tooltip("removed:Q", format=".4f")],
        ),
        base.mark_tick(thickness=3, height=26, color=look.ink).encode(x="median:Q", tooltip=told),
    ).properties(height=alt.Step(46))


def threshold_chart(
    curves: pd.DataFrame, points: pd.DataFrame, tau: float, ends: tuple[float, float], look: Look
) -> tuple[alt.LayerChart | alt.FacetChart, alt.LayerChart | alt.FacetChart]:
    """What each threshold would remove (mean, and the middle 80 % of prompts), with what was measured at the thresholds
    that were run; and the scores measured there. The line is the slider's threshold. Two charts, as Vega-Lite gives
    parts of one no width of their container.

    points   ``name, tau, removed, score, low, high, full``: a row a threshold that was run, ``full`` the control's;
             scores stand beside those that have no other near, as texts would overlap there
    """
    names = list(dict.fromkeys([*curves["name"], *points["name"]]))
    x = alt.X("tau:Q", title="threshold τ", scale=alt.Scale(domain=list(ends), nice=False), axis=alt.Axis(tickCount=12))
    # above the curves: the scores below them stand on the same axis, and need the same width
    wide = 50 + 7 * max(map(len, names), default=0)  # pixels that a name and its symbol take
    columns = alt.ExprRef(f"max(1, floor(width / {wide}))")
    color = colours(names, "benchmark", orient="top", columns=columns)
    shape, dash = shapes(names, "benchmark"), dashes(names, "benchmark")
    here = alt.Chart(pd.DataFrame({"tau": [tau]})).mark_rule(color=look.ink, strokeWidth=1.5).encode(x=x)
    share = alt.Y("mean:Q", title=REMOVED, scale=alt.Scale(domain=[0, 1]))
    inside = curves[(curves["tau"] >= ends[0] - 1e-9) & (curves["tau"] <= ends[1] + 1e-9)]
    near = (ends[1] - ends[0]) * NEAR
    alone = [int(((points["tau"] - tau).abs() <= near).sum()) == 1 for tau in points["tau"]]
    base, dots, texts = alt.Chart(inside), alt.Chart(points), alt.Chart(points[alone])
    hover = ["name", "tau", *(alt.Tooltip(f"{name}:Q", format=".4f") for name in ("mean", "low", "high"))]
    seen = ["name", "tau", alt.Tooltip("removed:Q", format=".4f"), alt.Tooltip("score:Q", format=".1f")]
    seen.append(alt.Tooltip("full:Q", format=".1f", title="full cache"))
    upper = alt.layer(
        base.mark_area(opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        base.mark_line().encode(x=x, y=share, color=color, strokeDash=dash, tooltip=hover),
        dots.mark_point(size=80, filled=True).encode(x=x, y="removed:Q", color=color, shape=shape, tooltip=seen),
        texts.mark_text(dx=-7, dy=-9, align="right", fontSize=11, color=look.ink).encode(
            x=x, y="removed:Q", text=alt.Text("score:Q", format=".0f")
        ),
        here,
    ).properties(height=360)
    color, shape, dash = color.legend(None), shape.legend(None), dash.legend(None)
    score = alt.Y("score:Q", title="score, measured", scale=alt.Scale(domain=[0, 100]))
    lower = alt.layer(
        dots.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        dots.mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y="full:Q", color=color),
        dots.mark_line().encode(x=x, y=score, color=color, strokeDash=dash),
        dots.mark_point(size=80, filled=True).encode(x=x, y=score, color=color, shape=shape, tooltip=seen),
        here,
    ).properties(height=190)
    return upper, lower


def budget_cells(cells: Sequence[Cell], method: str, options: str) -> list[Cell]:
    """The overall cells of a method under its budgets, by budget; none where fewer than two budgets were run."""
    own = [
        cell
        for cell in cells
        if (cell["subset"], cell["method"], cell["options"]) == (None, method, options)
        and level_of(cell) is not None
        and None not in (cell["removed_mean"], cell["score"])
    ]
    return own if len({cell["budget"] for cell in own}) > 1 else []


def budget_chart(cells: Sequence[Cell], control: Cell | None) -> alt.LayerChart | alt.FacetChart:
    """Score over measured removed, a line a budget on the same scores; the full cache's score is the dashed line."""
    rows = [
        {
            "name": curve_name(cell),
            **{key: cell[key] for key in ("variant", "score", "low", "high", "n")},
            "removed": cell["removed_mean"],
            "least": cell["removed_min"],
            "most": cell["removed_max"],
        }
        for cell in cells
    ]
    table = pd.DataFrame(rows).astype({"low": float, "high": float})
    names = list(dict.fromkeys(table["name"]))
    x = alt.X("removed:Q", title=f"{REMOVED}, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 100]))
    color = colours(names, "budget")
    hover = [
        "variant",
        *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("score", "low", "high", "removed", "least", "most")),
    ]
    base = alt.Chart(table)
    layers = [
        base.mark_rule(opacity=0.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        base.mark_rule(opacity=0.5, strokeWidth=2).encode(x=alt.X("least:Q"), x2="most:Q", y=y, color=color),
        base.mark_line().encode(x=x, y=y, color=color, strokeDash=dashes(names, "budget")),
        base.mark_point(size=80, filled=True).encode(
            x=x, y=y, color=color, shape=shapes(names, "budget"), tooltip=hover
        ),
    ]
    if control is not None and control["score"] is not None:
        full = pd.DataFrame([{"score": control["score"], "variant": "full cache"}])
        layers.append(alt.Chart(full).mark_rule(strokeDash=[4, 4]).encode(y="score:Q", tooltip=["variant", "score"]))
    return alt.layer(*layers).properties(height=340)
