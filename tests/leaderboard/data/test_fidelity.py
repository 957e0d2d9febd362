"""Fidelity figures and their intervals are the cells'."""

from __future__ import annotations

import numpy as np
import pytest

from harness.analysis.summary import summarise
from leaderboard.charts.fidelity import fidelity_chart
from leaderboard.charts.theme import method_styles
from leaderboard.data.fidelity import FIGURES, fidelity
from tests.harness.made_runs import FACTS, FULL, KNORM, both, lines_of


def test_figures_and_intervals_are_the_cells() -> None:
    kl = np.linspace(0.01, 0.2, 24)
    lines = lines_of(FULL, both(100.0), metrics={"kl_mean": 0.0, "kl_p95": 0.0, "ppl_ratio": 1.0})
    for line, value in zip(lines_of(KNORM, both(90.0)), kl, strict=True):
        lines.append(line.model_copy(update={"metrics": {"kl_mean": float(value)}}))
    cells = summarise(lines, FACTS, True).cells
    table = fidelity(cells)
    rows = table.set_index("metric")
    assert set(table["variant"]) == {"knorm head 0.5"} and set(rows.index) == {"kl_mean", "top1"}
    assert rows.loc["kl_mean", "value"] == pytest.approx(kl.mean()) and rows.loc["top1", "value"] == 90.0
    cell = next(cell for cell in cells if cell.subset is None and cell.method == "knorm")
    assert list(rows.loc["kl_mean", ["low", "high"]]) == cell.metric_intervals["kl_mean"]
    assert kl.min() < rows.loc["kl_mean", "low"] < kl.mean() < rows.loc["kl_mean", "high"] < kl.max()
    without = cell.model_copy(update={"metric_intervals": {}})
    assert fidelity([without]).set_index("metric").loc["kl_mean", ["low", "high"]].isna().all()


def test_a_method_has_the_style_that_it_has_on_all_pages() -> None:
    lines = [*lines_of(FULL, both(100.0)), *lines_of(KNORM, both(90.0), metrics={"kl_mean": 0.1})]
    methods = ["h2o", "knorm", "tova"]
    style = method_styles([("knorm head", "knorm")], methods)["knorm head"]
    for figure in FIGURES:
        drawing = fidelity_chart(fidelity(summarise(lines, FACTS, True).cells), figure, methods).to_dict()
        points = drawing["layer"][2]["encoding"]
        assert points["color"]["scale"] == {"domain": ["knorm head"], "range": [style.colour]}
        assert points["shape"]["scale"]["range"] == [style.shape]
