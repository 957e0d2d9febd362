"""Charts of what thresholds remove, prompt by prompt, and of budgets on the same scores."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from harness.results.schema import Cell
from leaderboard.charts.lines import Encoding, Hover, Layered, encoding, lines, tips
from leaderboard.charts.theme import Theme, category_styles
from leaderboard.data.levels import CONTROL

REMOVED = "removed fraction of the KV cache"
#: thresholds this near, as a share of the axis, are in one place
NEAR = 0.02
#: rows of a strip's dots beside each other
JITTER = 7


def spread_chart(table: pd.DataFrame, boxes: pd.DataFrame, by: str, title: str, theme: Theme) -> Layered:
    """A row per benchmark (or subset): a dot per prompt, the middle half as a box, the median as a tick, the ends.

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
        *tips(".3f", "mean", "min", "q25", "median", "q75", "max"),
    ]
    tint = theme.diverging[2]
    return alt.layer(
        base.mark_rule(color=theme.quiet).encode(x=alt.X("min:Q"), x2="max:Q"),
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
        base.mark_tick(thickness=3, height=26, color=theme.ink).encode(x="median:Q", tooltip=told),
    ).properties(height=alt.Step(46))


def threshold_chart(
    curves: pd.DataFrame, points: pd.DataFrame, tau: float, ends: tuple[float, float], theme: Theme
) -> tuple[Layered, Layered]:
    """What each threshold would remove (mean, and the middle 80 % of prompts), with what was measured at the thresholds
    that were run; and the scores measured there. The line is the slider's threshold. Two charts, since Vega-Lite gives
    parts of one no width of their container.

    curves   :func:`leaderboard.data.histograms.curves`
    points   ``name, tau, removed, score, low, high, full``: a row per threshold that was run, ``full`` the control's;
             scores are written beside those that have no other near, as texts would overlap there
    """
    names = list(dict.fromkeys([*curves["name"], *points["name"]]))
    x = alt.X("tau:Q", title="threshold τ", scale=alt.Scale(domain=list(ends), nice=False), axis=alt.Axis(tickCount=12))
    # above the curves: the scores below them stand on the same axis, and need the same width
    wide = 50 + 7 * max(map(len, names), default=0)  # pixels that a name and its symbol take
    columns = alt.ExprRef(f"max(1, floor(width / {wide}))")
    by = encoding(category_styles(names), "benchmark", orient="top", columns=columns)
    here = alt.Chart(pd.DataFrame({"tau": [tau]})).mark_rule(color=theme.ink, strokeWidth=1.5).encode(x=x)
    inside = curves[(curves["tau"] >= ends[0] - 1e-9) & (curves["tau"] <= ends[1] + 1e-9)]
    seen: Hover = [
        *("name", "tau", alt.Tooltip("removed:Q", format=".4f"), alt.Tooltip("score:Q", format=".1f")),
        alt.Tooltip("full:Q", format=".1f", title=CONTROL),
    ]
    upper = alt.layer(*_removed(inside, points, by, x, seen, theme, (ends[1] - ends[0]) * NEAR), here)
    by = by.without_legend()
    score = alt.Y("score:Q", title="score, measured", scale=alt.Scale(domain=[0, 100]))
    full = alt.Chart(points).mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y="full:Q", color=by.color)
    lower = alt.layer(*lines(points, by, x, score, seen), full, here)
    return upper.properties(height=360), lower.properties(height=190)


def _removed(
    curves: pd.DataFrame,
    points: pd.DataFrame,
    by: Encoding,
    x: alt.X,
    hover: Hover,
    theme: Theme,
    near: float,
) -> list[alt.Chart]:
    """Bands and lines of ``curves``, markers of ``points``, scores beside those with no other within ``near``."""
    alone = [int(((points["tau"] - tau).abs() <= near).sum()) == 1 for tau in points["tau"]]
    base, dots, texts = alt.Chart(curves), alt.Chart(points), alt.Chart(points[alone])
    share = alt.Y("mean:Q", title=REMOVED, scale=alt.Scale(domain=[0, 1]))
    told = ["name", "tau", *tips(".4f", "mean", "low", "high")]
    return [
        base.mark_area(opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=by.color),
        base.mark_line().encode(x=x, y=share, color=by.color, strokeDash=by.dash, tooltip=told),
        dots.mark_point(size=70, filled=True).encode(
            x=x, y="removed:Q", color=by.color, shape=by.shape, tooltip=list(hover)
        ),
        texts.mark_text(dx=-7, dy=-9, align="right", fontSize=11, color=theme.ink).encode(
            x=x, y="removed:Q", text=alt.Text("score:Q", format=".0f")
        ),
    ]


def budget_chart(cells: Sequence[Cell], control: Cell | None) -> Layered:
    """Score over measured removed, a line per budget on the same scores; the full cache's score is the dashed line.
    Horizontal bars: the range over prompts of what was removed.

    cells   :func:`leaderboard.data.thresholds.budget_cells`
    """
    fields = ("variant", "score", "low", "high", "n", "removed_mean", "removed_min", "removed_max")
    rows = [{"name": cell.curve, **cell.model_dump(include=set(fields))} for cell in cells]
    table = pd.DataFrame(rows).astype({"low": float, "high": float})
    table = table.rename(columns={"removed_mean": "removed", "removed_min": "least", "removed_max": "most"})
    x = alt.X("removed:Q", title=f"{REMOVED}, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 100]))
    by = encoding(category_styles(table["name"].unique()), "budget")
    figures = ("score", "low", "high", "removed", "least", "most")
    hover: Hover = ["variant", *tips(".3f", *figures)]
    ranges = alt.Chart(table).mark_rule(opacity=0.5, strokeWidth=2)
    layers = [*lines(table, by, x, y, hover), ranges.encode(x=alt.X("least:Q"), x2="most:Q", y=y, color=by.color)]
    if control is not None and control.score is not None:
        full = pd.DataFrame([{"score": control.score, "variant": CONTROL}])
        layers.append(alt.Chart(full).mark_rule(strokeDash=[4, 4]).encode(y="score:Q", tooltip=["variant", "score"]))
    return alt.layer(*layers).properties(height=340)
