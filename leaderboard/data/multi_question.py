"""Several questions on one context: the score by the question's place, and the prefills paid by query mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.ranking import level_of
from harness.analysis.stats import mean_interval
from harness.results.run_folder import AVERAGED, Line
from leaderboard.charts.heatmap import level_name
from leaderboard.charts.theme import Look, colours, dashes, shapes
from leaderboard.data.standings import row_names

#: query modes, in the order of what they cost
MODES = ("agnostic", "aware-reused", "aware")


def has_questions(lines: Iterable[Line]) -> bool:
    return any(line.question_index is not None for line in lines)


def by_question(lines: Iterable[Line], seed: int = 0) -> pd.DataFrame:
    """A row a variant and place of a question (from 1): ``variant, name, level, mode, question, score, low, high, n``.

    The score is the mean over contexts, with a bootstrap interval from ten contexts on.
    """
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if line.question_index is not None:
            groups.setdefault((line.variant, line.question_index), []).append(line)
    named = _named(own[0] for own in groups.values())
    found = []
    for (variant, index), own in sorted(groups.items(), key=lambda item: item[0][1]):
        scores = [line.score for line in own if line.status in AVERAGED and line.score is not None]
        interval = mean_interval([scores], seed) if scores else None
        found.append(
            {
                **named[variant],
                "variant": variant,
                "question": index + 1,
                "score": fmean(scores) if scores else None,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
                "n": len(scores),
            }
        )
    columns = ["variant", "name", "level", "mode", "question", "score", "low", "high", "n"]
    return pd.DataFrame(found, columns=columns).astype({"score": float, "low": float, "high": float})


def prefills(lines: Iterable[Line], scores: Mapping[str, float | None]) -> pd.DataFrame:
    """A row a variant: questions, contexts, prefills of the context paid for all of them, and for one context; its
    overall score from ``scores``."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        if line.prefills_paid is not None:
            groups.setdefault(line.variant, []).append(line)
    named = _named(own[0] for own in groups.values())
    found = []
    for variant, own in groups.items():
        contexts = len({(line.benchmark, line.length, line.context_id) for line in own})
        paid = sum(line.prefills_paid or 0 for line in own)
        found.append(
            {
                **named[variant],
                "variant": variant,
                "questions": len(own),
                "contexts": contexts,
                "prefills": paid,
                "a context": paid / contexts,
                "score": scores.get(variant),
            }
        )
    columns = ["name", "level", "mode", "variant", "questions", "contexts", "prefills", "a context", "score"]
    return pd.DataFrame(found, columns=columns).astype({"score": float})


def _named(lines: Iterable[Line]) -> dict[str, dict[str, Any]]:
    """``name, level, mode`` by variant, of lines of which each is of another variant."""
    some = {line.variant: line.model_dump() for line in lines}
    names, found = row_names(some.values()), {}
    for variant, line in some.items():
        level, mode = level_of(line), line["query_mode"]
        name = names[variant].removesuffix(f" {mode}") if level else "full cache"
        found[variant] = {"name": name, "level": level_name(level), "mode": mode}
    return found


def question_chart(table: pd.DataFrame) -> alt.FacetChart:
    """A panel a query mode; the full cache's line is in each of them."""
    modes = [mode for mode in MODES if mode in set(table["mode"])]
    control = table[table["level"] == "full cache"]
    own = table[table["level"] != "full cache"]
    shown = pd.concat([own, *(control.assign(mode=mode) for mode in modes)])
    names = [*dict.fromkeys(control["name"]), *dict.fromkeys(own["name"])]
    base = alt.Chart(shown)
    x = alt.X("question:O", title="question on the context", axis=alt.Axis(labelAngle=0))
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 100]))
    colour = colours(names, "method")
    hover = ["variant", "question", *(alt.Tooltip(f"{name}:Q", format=".1f") for name in ("score", "low", "high")), "n"]
    layers = alt.layer(
        base.mark_rule(opacity=0.5).encode(x=x, y="low:Q", y2="high:Q", color=colour),
        base.mark_line().encode(x=x, y=y, color=colour, strokeDash=dashes(names, "method")),
        base.mark_point(size=70, filled=True).encode(
            x=x, y=y, color=colour, shape=shapes(names, "method"), tooltip=hover
        ),
        data=shown,
    ).properties(width=alt.Step(46), height=260)
    return layers.facet(column=alt.Column("mode:N", sort=modes, title=None, header=alt.Header(labelFontWeight="bold")))


def prefill_chart(table: pd.DataFrame, look: Look) -> alt.LayerChart | alt.FacetChart:
    """Prefills that a deployment pays for one context's questions: a bar a method, a group a query mode."""
    own = table[table["level"] != "full cache"].copy()
    modes = [mode for mode in MODES if mode in set(own["mode"])]
    own["text"] = [
        f"{value:g} · score {score:.1f}" if score == score else f"{value:g}"
        for value, score in zip(own["a context"], own["score"].astype(float), strict=True)
    ]
    names = list(dict.fromkeys(own["name"]))
    x = alt.X("a context:Q", title="prefills of a context, paid for all its questions", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("mode:N", sort=modes, title=None)
    offset = alt.YOffset("variant:N", sort=list(own["variant"]))
    base = alt.Chart(own)
    bars = base.mark_bar(cornerRadiusEnd=3).encode(
        x=x,
        y=y,
        yOffset=offset,
        color=colours(names, "method"),
        tooltip=["variant", "prefills", "contexts", "questions"],
    )
    text = base.mark_text(align="left", dx=5, color=look.ink, fontSize=11).encode(
        x=x, y=y, yOffset=offset, text="text:N"
    )
    return alt.layer(bars, text).properties(height=24 * len(own) + 20)
