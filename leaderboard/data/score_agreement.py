"""How alike the scores of methods are, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from harness.analysis.paired_tests import Scored
from leaderboard.charts.heatmap import HEIGHT, MARK, NONE, grid
from leaderboard.charts.theme import Look

#: scores (0 to 100) this near are the same
NEAR = 0.5
SAME, CORRELATION = "same score", "correlation"
MEASURES = {
    SAME: "Share of the samples that both answered on which their scores differ by less than half a point. Scores "
    "count, not texts: two wrong answers are alike.",
    CORRELATION: "Pearson's correlation of the two scores over the samples that both answered: whether they fail on "
    "the same samples, however often. – where a method has one score on all samples.",
}
#: pixels of all columns beside row names on a common page, and of a column with a figure in it at least
WIDE, NARROW = 580, 30


def same(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The share of places where the scores differ by less than half a point; None where there are none."""
    return float(np.mean(np.abs(np.asarray(a) - np.asarray(b)) < NEAR)) if len(a) else None


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's r; None where it is not defined (under two places, or all of one's scores the same)."""
    if len(a) < 2:
        return None
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, float(x @ y) / size)) if size > 1e-9 else None


def likeness(scores: Mapping[str, Mapping[str, Scored]], measure: str) -> list[dict[str, Any]]:
    """One row a pair of variants, the later one as ``a``: ``a, b, value, n`` (samples that both have)."""
    of = {SAME: same, CORRELATION: correlation}[measure]
    names, found = list(scores), []
    for place, b in enumerate(names):
        for a in names[place + 1 :]:
            common = [sample for sample in scores[a] if sample in scores[b]]
            value = of([scores[a][one].score for one in common], [scores[b][one].score for one in common])
            found.append({"a": a, "b": b, "value": value, "n": len(common)})
    return found


def likeness_chart(
    rows: Sequence[dict[str, Any]], names: Mapping[str, str], measure: str, look: Look
) -> alt.LayerChart | alt.FacetChart:
    """The lower half of the matrix. ``names`` has the label of each variant, in order."""
    places = {variant: f"{number:03d}{MARK}{label}" for number, (variant, label) in enumerate(names.items())}
    table = pd.DataFrame(
        {
            **row,
            "row": places[row["a"]],
            "place": places[row["b"]],
            "fill": "grey" if row["value"] is None else "colour",
            "text": NONE if row["value"] is None else _text(row["value"], measure),
        }
        for row in rows
    )
    table["value"] = table["value"].astype(float)
    table["deep"] = table["value"].abs() > (0.6 if measure == SAME else 0.7)
    domain, colours = ([0.0, 1.0], list(look.rising)) if measure == SAME else ([-1.0, 0.0, 1.0], list(look.diverging))
    style = ".0%" if measure == SAME else ".2f"
    colour = alt.Color(
        "value:Q",
        title=measure,
        scale=alt.Scale(domain=domain, range=colours, interpolate="rgb"),
        legend=alt.Legend(orient="top", gradientLength=220, gradientThickness=10, format=style),
    )
    hover = [alt.Tooltip("a:N"), alt.Tooltip("b:N"), alt.Tooltip("value:Q", format=".3f"), alt.Tooltip("n:Q")]
    return grid(
        table,
        colour,
        hover,
        sorted(set(table["row"])),
        sorted(set(table["place"])),
        look,
        max(NARROW, min(HEIGHT + 20, WIDE // table["place"].nunique())),
    )


def _text(value: float, measure: str) -> str:
    return f"{value:.0%}" if measure == SAME else f"{value:.2f}".replace("-", "−")
