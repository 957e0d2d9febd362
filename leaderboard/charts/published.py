"""Small charts of published figures. All their marks are hollow, so that none is taken for a measured one."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from leaderboard.charts.theme import BLUE, GREY, ORANGE

HOLLOW: dict[str, Any] = {"filled": False, "strokeWidth": 2}


def change_chart(results: pd.DataFrame) -> Any:
    """Full and pruned, joined by a line, of each model: one panel a benchmark with a scale of its own."""
    shown = results[results["full cache"].notna()].rename(columns={"full cache": "full"})
    both = shown.melt(["model", "KVzap", "benchmark"], ["full", "pruned"], "cache", "score")
    y = alt.Y("model:N", title=None, axis=alt.Axis(labelLimit=220))
    base = alt.Chart(both)
    line = base.mark_line(color=GREY).encode(x=alt.X("score:Q", scale=alt.Scale(zero=False)), y=y, detail="model:N")
    points = base.mark_point(size=90, **HOLLOW).encode(
        x=alt.X("score:Q", title=None, scale=alt.Scale(zero=False, padding=14)),
        y=y,
        shape=alt.Shape("cache:N", title="cache", scale=_two("full", "pruned", "circle", "triangle-down")),
        color=alt.Color("cache:N", title="cache", scale=_two("full", "pruned", GREY, BLUE)),
        tooltip=["model", "KVzap", "benchmark", "cache", "score"],
    )
    panels = alt.layer(line, points).properties(width=300, height=90)
    return panels.facet(
        alt.Facet("benchmark:N", title=None, sort=list(dict.fromkeys(both["benchmark"]))), columns=2
    ).resolve_scale(x="independent")


def rollout_chart(points: pd.DataFrame) -> alt.Chart:
    """A mark an answer; those of one setting lie below each other, so that equal ones do not hide each other."""
    return (
        alt.Chart(points)
        .mark_point(size=55, shape="diamond", color=BLUE, **HOLLOW)
        .encode(
            x=alt.X("solved:Q", title="problems solved of 30", scale=alt.Scale(domain=[0, 30])),
            y=alt.Y("setting:N", title=None, sort=list(dict.fromkeys(points["setting"]))),
            yOffset="answer:N",
            tooltip=["setting", "answer", "solved", "removed"],
        )
        .properties(height=240)
    )


def window_chart(windows: pd.DataFrame) -> Any:
    x = alt.X("window:O", title="newest tokens that are never pruned", axis=alt.Axis(labelAngle=0))
    base = alt.Chart(windows).encode(x=x, y=alt.Y("score:Q", title="score on LCC", scale=alt.Scale(domain=[0, 100])))
    return _bars(base, "score:Q", "x")


def overhead_chart(overheads: pd.DataFrame) -> Any:
    shown = overheads.assign(of=overheads["model"] + ", " + overheads["kind"])
    y = alt.Y("of:N", title=None, sort=None, axis=alt.Axis(labelLimit=260))
    base = alt.Chart(shown).encode(x=alt.X("percent:Q", title="% of the linear projections' FLOPs"), y=y)
    return _bars(base, "percent:Q", "y")


def r2_chart(points: pd.DataFrame) -> alt.Chart:
    return (
        alt.Chart(points)
        .mark_point(size=90, **HOLLOW)
        .encode(
            x=alt.X("R2:Q", title="squared correlation with KVzip+", scale=alt.Scale(domain=[0.5, 0.9])),
            y=alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
            shape=alt.Shape("surrogate:N", scale=_two("linear", "MLP", "square", "diamond")),
            color=alt.Color("surrogate:N", scale=_two("linear", "MLP", ORANGE, BLUE)),
            tooltip=["model", "surrogate", "R2"],
        )
        .properties(height=180)
    )


def _bars(base: alt.Chart, value: str, along: str) -> Any:
    """Hollow bars with their figures."""
    place: dict[str, Any] = {"dy": -8} if along == "x" else {"dx": 6, "align": "left"}
    bars = base.mark_bar(filled=False, stroke=BLUE, strokeWidth=2, fillOpacity=0)
    return alt.layer(bars, base.mark_text(color=GREY, fontSize=13, **place).encode(text=value)).properties(height=220)


def _two(one: str, other: str, *range: str) -> alt.Scale:
    return alt.Scale(domain=[one, other], range=list(range))
