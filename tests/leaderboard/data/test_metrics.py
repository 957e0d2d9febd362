"""Metrics beside the score: figures and intervals are the cells'; a benchmark's own are drawn as it declares them."""

from __future__ import annotations

import numpy as np
import pytest

from harness.analysis.summary import summarise
from harness.results.schema import UNDECLARED, Cell, Metric
from leaderboard.charts.metric_curves import metric_chart
from leaderboard.charts.theme import method_styles
from leaderboard.data.metrics import SCORE, metric_table, shown_metrics
from tests.harness.made_runs import FACTS, FULL, KNORM, both, lines_of

KL = next(metric for metric in UNDECLARED if metric.name == "kl_mean")
OWN = Metric(name="cited", title="cited", format=".0%", description="answers that cite the context")
METHODS = ["h2o", "knorm", "tova"]


def cells(metric: str, values: np.ndarray) -> list[Cell]:
    lines = lines_of(FULL, both(100.0), metrics={metric: 0.0})
    for line, value in zip(lines_of(KNORM, both(90.0)), values, strict=True):
        lines.append(line.model_copy(update={"metrics": {metric: float(value)}}))
    return summarise(lines, FACTS, True).cells


def test_figures_and_intervals_are_the_cells() -> None:
    kl = np.linspace(0.01, 0.2, 24)
    found = cells("kl_mean", kl)
    assert shown_metrics(found, UNDECLARED) == [KL, SCORE] and shown_metrics(found, [OWN]) == []
    rows = metric_table(found, [KL, SCORE]).set_index("metric")
    assert set(rows["variant"]) == {"knorm head 0.5"} and rows.loc["score", "value"] == 90.0
    assert rows.loc["kl_mean", "value"] == pytest.approx(kl.mean())
    cell = next(cell for cell in found if cell.subset is None and cell.method == "knorm")
    assert list(rows.loc["kl_mean", ["low", "high"]]) == cell.metric_intervals["kl_mean"]
    assert kl.min() < rows.loc["kl_mean", "low"] < kl.mean() < rows.loc["kl_mean", "high"] < kl.max()
    without = cell.model_copy(update={"metric_intervals": {}})
    assert metric_table([without], [KL])[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("metric", "title", "scale", "form"),
    [(KL, KL.description, "log", None), (OWN, OWN.description, None, "%"), (SCORE, "score", None, None)],
    ids=["KL", "a benchmark's own", "score"],
)
def test_a_metric_is_drawn_as_it_is_declared(metric: Metric, title: str, scale: str | None, form: str | None) -> None:
    found = cells(metric.name, np.linspace(0.0, 0.9, 24))
    drawing = metric_chart(metric_table(found, [metric]), metric, METHODS).to_dict()
    points = drawing["layer"][2]["encoding"]
    assert points["y"]["title"] == title and points["y"]["scale"].get("type") == scale
    assert points["y"]["axis"].get("format") == form
    style = method_styles([("knorm head", "knorm")], METHODS)["knorm head"]  # as on every page
    assert points["color"]["scale"] == {"domain": ["knorm head"], "range": [style.colour]}
    assert points["shape"]["scale"]["range"] == [style.shape]
