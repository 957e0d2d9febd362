"""Memory and speed that runs have measured, and nothing else: no figure here is worked out from a removed fraction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import altair as alt
import pandas as pd

from harness.analysis.ranking import curve_name
from harness.analysis.summary import removed_of
from harness.results.run_folder import AVERAGED, Line
from leaderboard.charts.curves import CONTROL, GREY, styles

COLUMNS = ["curve", "method", "variant", "removed", "value", "low", "high", "samples"]


class Figure(NamedTuple):
    """A figure that a line may have: ``physical_bytes`` is its own field, the others are in its ``metrics``."""

    name: str
    title: str
    axis: str
    scale: float
    of: Callable[[Line], float | None]


def _metric(name: str) -> Callable[[Line], float | None]:
    return lambda line: line.metrics.get(name)


FIGURES = (
    Figure("physical_bytes", "Physical cache", "MiB of keys and values", 2**20, lambda line: line.physical_bytes),
    Figure("peak_bytes", "Peak memory", "MiB at the peak", 2**20, _metric("peak_bytes")),
    Figure("ttft_seconds", "Time to first token", "seconds", 1, _metric("ttft_seconds")),
    Figure("tokens_per_second", "Tokens per second", "new tokens a second", 1, _metric("tokens_per_second")),
)


def measured(lines: Iterable[Line], figure: Figure) -> pd.DataFrame:
    """A row a variant that has the figure: mean, least and largest over its answers, and the mean removed fraction.
    Variants without it have no row."""
    by_variant: dict[str, list[tuple[float, float, Line]]] = {}
    for line in lines:
        value, removed = figure.of(line), removed_of(line)
        if line.status in AVERAGED and value is not None and removed is not None:
            by_variant.setdefault(line.variant, []).append((value / figure.scale, removed, line))
    rows = []
    for variant, some in by_variant.items():
        values, line = [value for value, _, _ in some], some[0][2]
        curve = CONTROL if line.level_kind == "none" else curve_name(line.model_dump())
        removed = fmean(fraction for _, fraction, _ in some)
        samples = len({one.sample_id for _, _, one in some})
        rows.append([curve, line.method, variant, removed, fmean(values), min(values), max(values), samples])
    return pd.DataFrame(rows, columns=COLUMNS)


def speed_chart(table: pd.DataFrame, figure: Figure, methods: Sequence[str]) -> alt.LayerChart | alt.FacetChart:
    """The figure over the measured removed fraction, a line a curve in the look that its method has on all pages; the
    full cache is a dashed rule."""
    pruned, control = table[table["curve"] != CONTROL], table[table["curve"] == CONTROL]
    curves = list(dict.fromkeys(zip(pruned["curve"], pruned["method"], strict=True)))
    looks = styles(curves, methods)
    names = list(looks)

    def scale(part: str) -> alt.Scale:
        return alt.Scale(domain=names, range=[getattr(looks[name], part) for name in names])

    hover = ["variant", "removed", "value", "low", "high", "samples"]
    x = alt.X("removed:Q", title="removed fraction, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title=figure.axis, scale=alt.Scale(zero=True))
    color = alt.Color("curve:N", title="method", scale=scale("colour"))
    base = alt.Chart(pruned).encode(x=x, y=y, color=color)
    return alt.layer(
        base.mark_line().encode(strokeDash=alt.StrokeDash("curve:N", title="method", scale=scale("dash"))),
        base.mark_point(size=70, filled=True).encode(
            shape=alt.Shape("curve:N", title="method", scale=scale("shape")), tooltip=hover
        ),
        alt.Chart(control).mark_rule(strokeDash=[7, 5], color=GREY).encode(y="value:Q", tooltip=hover),
    ).properties(height=300)
