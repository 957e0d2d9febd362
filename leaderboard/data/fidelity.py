"""Fidelity: how far the predictions of a pruned cache are from the full cache's, over what was removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from harness.analysis.ranking import curve_name, level_of
from harness.analysis.stats import mean_interval
from harness.results.run_folder import AVERAGED, Line
from leaderboard.charts.theme import colours, dashes, shapes

Cell = dict[str, Any]


class Figure(NamedTuple):
    """A metric of the lines, how it is titled and drawn."""

    metric: str
    title: str
    log: bool
    best: float | None


#: the score is 100 x top-1 agreement, with an interval of its own
TOP1 = Figure("top1", "top-1 agreement, %", False, 100.0)
FIGURES = (
    Figure("kl_mean", "KL(full ‖ pruned) a token, mean, nats", True, None),
    Figure("kl_p95", "KL a token, 95th percentile, nats", True, None),
    TOP1,
    Figure("ppl_ratio", "perplexity, times the full cache's", True, 1.0),
)


def has_closeness(cells: Iterable[Cell]) -> bool:
    return any("kl_mean" in cell["metrics"] for cell in cells)


def closeness(cells: Sequence[Cell], lines: Iterable[Line], seed: int = 0) -> pd.DataFrame:
    """A row a pruned variant and figure: ``variant, name, level, removed, metric, value, low, high, n``.

    ``value`` is the cell's; ``low`` and ``high`` are the bootstrap interval of the mean over samples, whole contexts
    resampled within subsets; none under ten contexts a subset, or where subsets have unequal numbers, whose means weigh
    unequally.
    """
    by_variant: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        if line.status in AVERAGED:
            by_variant.setdefault(line.variant, {}).setdefault(line.subset, []).append(line)
    found = []
    for cell in cells:
        if cell["subset"] is not None or level_of(cell) is None or cell["removed_mean"] is None:
            continue
        for figure in FIGURES:
            value = cell["score"] if figure is TOP1 else cell["metrics"].get(figure.metric)
            low, high = (cell["low"], cell["high"]) if figure is TOP1 else (None, None)
            if figure is not TOP1:
                strata = by_variant.get(cell["variant"], {}).values()
                low, high = _interval(list(strata), figure.metric, seed) or (None, None)
            if value is not None:
                found.append(
                    {
                        "variant": cell["variant"],
                        "name": curve_name(cell),
                        "removed": cell["removed_mean"],
                        "metric": figure.metric,
                        "value": value,
                        "low": low,
                        "high": high,
                        "n": cell["n"],
                    }
                )
    columns = ["variant", "name", "removed", "metric", "value", "low", "high", "n"]
    return pd.DataFrame(found, columns=columns).astype({"value": float, "low": float, "high": float})


def _interval(strata: Sequence[Sequence[Line]], metric: str, seed: int) -> tuple[float, float] | None:
    known = [[line for line in own if line.metrics.get(metric) is not None] for own in strata]
    if len({*map(len, strata), *map(len, known)}) != 1:
        return None
    units = [[line.context_id for line in own] for own in known]
    return mean_interval([[line.metrics[metric] for line in own] for own in known], seed, units=units)


def closeness_chart(table: pd.DataFrame, figure: Figure) -> alt.LayerChart | alt.FacetChart:
    """One figure over the measured removed fraction; on a log axis what is 0 has no place."""
    names = list(dict.fromkeys(table["name"]))
    own = table[(table["metric"] == figure.metric) & ((table["value"] > 0) | (not figure.log))].copy()
    if figure.log:
        own["low"] = own["low"].where(own["low"] > 0, own["value"])
    scale = alt.Scale(type="log", nice=True) if figure.log else alt.Scale(domain=[0, 100])
    x = alt.X("removed:Q", title="removed fraction, measured", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title=figure.title, scale=scale, axis=alt.Axis(tickCount=6))
    colour, shape, dash = colours(names, "method"), shapes(names, "method"), dashes(names, "method")
    base = alt.Chart(own)
    hover = ["variant", *(alt.Tooltip(f"{name}:Q", format=".4g") for name in ("value", "low", "high", "removed")), "n"]
    return alt.layer(
        base.mark_rule(opacity=0.6).encode(x=x, y="low:Q", y2="high:Q", color=colour),
        base.mark_line().encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_point(size=70, filled=True).encode(x=x, y=y, color=colour, shape=shape, tooltip=hover),
    ).properties(height=300)
