"""Benchmarks with several drawn answers a problem: pass@k, what each rollout got right, answers cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.ranking import curve_name, level_of
from harness.reporting.columns import settings
from harness.results.run_folder import Line
from leaderboard.charts.heatmap import level_name
from leaderboard.charts.theme import Look, colours, shapes

Cell = dict[str, Any]
CORRECT = "correct_rollout_"
#: of :func:`passes`, beside what the cells' metrics add to them
COLUMNS = (
    *("variant", "name", "level", "removed", "problems", "rollouts", "pass@1", "se", "low", "high"),
    *("answered", "at limit", "truncated"),
)
#: columns from 0 to 1
SHARES = ("answered", "at limit", "truncated")


def has_passes(cells: Iterable[Cell]) -> bool:
    return any("pass@1" in cell["metrics"] for cell in cells)


def truncated_shares(lines: Iterable[Line]) -> dict[str, float]:
    """Of each variant's answers the share that was not run since the prompt does not fit."""
    counts: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for line in lines:
        counts[line.variant] += 1
        cut[line.variant] += line.status == "truncated"
    return {variant: cut[variant] / count for variant, count in counts.items()}


def passes(cells: Sequence[Cell], truncated: dict[str, float]) -> pd.DataFrame:
    """A row an overall cell: pass@k in per cent, the standard error of pass@1 and its reach, problems that each rollout
    got right, shares (0 to 1) of answers with a boxed result, at their limit, and truncated."""
    found = []
    for cell in cells:
        metrics = cell["metrics"]
        if cell["subset"] is not None or "pass@1" not in metrics:
            continue
        score, error = metrics["pass@1"], metrics.get("pass@1_se")
        found.append(
            {
                "variant": cell["variant"],
                "name": curve_name(cell) if level_of(cell) else "full cache",
                "level": level_name(level_of(cell)),
                "removed": cell["removed_mean"],
                "problems": cell["n"],
                "rollouts": cell["rollouts"],
                "pass@1": score,
                "se": error,
                "low": None if error is None or score is None else max(0.0, score - error),
                "high": None if error is None or score is None else min(100.0, score + error),
                **{k: v for k, v in metrics.items() if k.startswith("pass@") and k not in ("pass@1", "pass@1_se")},
                **{f"right, rollout {int(k.removeprefix(CORRECT)) + 1}": v for k, v in metrics.items() if _counts(k)},
                "answered": metrics.get("answered"),
                "at limit": cell.get("limit_share"),
                "truncated": truncated.get(cell["variant"], 0.0),
            }
        )
    return pd.DataFrame(found, columns=None if found else list(COLUMNS))


def _counts(metric: str) -> bool:
    return metric.startswith(CORRECT) and metric.removeprefix(CORRECT).isdigit()


def how_drawn(cells: Sequence[Cell]) -> str:
    """Rollouts, sampling and limit, in words."""
    overall = [{"rollouts": 1, **cell} for cell in cells if cell["subset"] is None and cell["n"]]
    return settings(overall[:1], None) if overall else ""


def pass_chart(table: pd.DataFrame, look: Look) -> alt.LayerChart | alt.FacetChart:
    """A row a variant: pass@1 filled with its standard error, the other pass@k hollow."""
    kinds = [name for name in table.columns if name.startswith("pass@")]
    order = list(table["variant"])
    long = table.melt(["variant", "level", "low", "high", "problems", "rollouts"], kinds, "name", "value").dropna(
        subset="value"
    )
    y = alt.Y("variant:N", sort=order, title=None, scale=alt.Scale(domain=order), axis=alt.Axis(labelLimit=320))
    x = alt.X("value:Q", title="per cent", scale=alt.Scale(domain=[0, 100]))
    hover = ["variant", "name", alt.Tooltip("value:Q", format=".1f"), "low", "high", "problems", "rollouts"]
    errors = alt.Chart(table.dropna(subset=["low", "high"])).mark_rule(strokeWidth=2, color=look.quiet)
    points = alt.Chart(long).mark_point(size=90, strokeWidth=2)
    filled = alt.condition("datum.name == 'pass@1'", alt.value(1.0), alt.value(0.0))
    return alt.layer(
        errors.encode(y=y, x=alt.X("low:Q"), x2="high:Q"),
        points.encode(
            x=x, y=y, color=colours(kinds, "figure"), shape=shapes(kinds, "figure"), fillOpacity=filled, tooltip=hover
        ),
    ).properties(height=alt.Step(26))
