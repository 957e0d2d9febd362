"""Charts of several questions on one context: scores by question, prefills by query mode."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from leaderboard.charts.lines import Hover, Layered, encoding, lines, tips
from leaderboard.charts.theme import CONTROL_STYLE, Style, Theme, method_styles
from leaderboard.data.levels import CONTROL
from leaderboard.data.multi_question import MODES


def question_chart(table: pd.DataFrame, methods: Sequence[str]) -> alt.FacetChart:
    """A panel per query mode; the full cache's line is in each of them.

    table     :func:`leaderboard.data.multi_question.by_question`
    methods   all of the board's, see :func:`leaderboard.charts.theme.method_styles`
    """
    modes = [mode for mode in MODES if mode in set(table["mode"])]
    control, own = table[table["name"] == CONTROL], table[table["name"] != CONTROL]
    shown = pd.concat([own, *(control.assign(mode=mode) for mode in modes)])
    x = alt.X("question:O", title="question on the context", axis=alt.Axis(labelAngle=0))
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 100]))
    hover: Hover = [
        "variant",
        "question",
        *tips(".1f", "score", "low", "high"),
        "n",
    ]
    layers = lines(shown, encoding(_styles(table, methods), "method"), x, y, hover)
    panels = alt.layer(*layers, data=shown).properties(width=alt.Step(46), height=260)
    return panels.facet(column=alt.Column("mode:N", sort=modes, title=None, header=alt.Header(labelFontWeight="bold")))


def prefill_chart(table: pd.DataFrame, theme: Theme, methods: Sequence[str]) -> Layered:
    """Prefills that a deployment pays for one context's questions: a bar per method, a group per query mode.

    table     :func:`leaderboard.data.multi_question.prefills`
    """
    own = table[table["name"] != CONTROL].copy()
    modes = [mode for mode in MODES if mode in set(own["mode"])]
    own["text"] = [
        f"{value:g} · score {score:.1f}" if score == score else f"{value:g}"
        for value, score in zip(own["per context"], own["score"].astype(float), strict=True)
    ]
    x = alt.X("per context:Q", title="prefills paid per context, for all its questions", axis=alt.Axis(tickMinStep=1))
    base = alt.Chart(own).encode(
        x=x, y=alt.Y("mode:N", sort=modes, title=None), yOffset=alt.YOffset("variant:N", sort=list(own["variant"]))
    )
    bars = base.mark_bar(cornerRadiusEnd=3).encode(
        color=encoding(_styles(own, methods), "method").color,
        tooltip=["variant", "prefills", "contexts", "questions"],
    )
    text = base.mark_text(align="left", dx=5, color=theme.ink, fontSize=11).encode(text="text:N")
    return alt.layer(bars, text).properties(height=24 * len(own) + 20)


def _styles(table: pd.DataFrame, methods: Sequence[str]) -> dict[str, Style]:
    pruned = table[table["name"] != CONTROL]
    control = {CONTROL: CONTROL_STYLE} if len(pruned) < len(table) else {}
    return {**control, **method_styles(dict.fromkeys(zip(pruned["name"], pruned["method"], strict=True)), methods)}
