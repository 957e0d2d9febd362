"""Sampled answers: pass@k is the cells', shares are those of the lines."""

from __future__ import annotations

import numpy as np
import pytest

from harness.analysis.summary import summarise
from harness.results.schema import Line
from leaderboard.charts.pass_at_k import pass_chart
from leaderboard.charts.theme import LIGHT
from leaderboard.data.pass_at_k import has_passes, pass_table, sampling, truncated_shares
from tests.harness.made_runs import FACTS, FULL, KNORM, lines_of


def test_pass_figures_are_the_cells() -> None:
    facts = {"toy": FACTS["toy"].model_copy(update={"pass_at": [1, 4]})}
    lines: list[Line] = []
    for rollout, scores in enumerate(([100.0, 0.0], [100.0, 0.0], [0.0, 0.0], [0.0, 100.0])):
        lines += lines_of(FULL, {"red": scores}, rollout=rollout, metrics={"answered": 1.0}, finish_reason="length")
        lines += lines_of(KNORM, {"red": scores}, rollout=rollout, status="truncated")
    cells = summarise(lines, facts, True).cells
    table = pass_table(cells, truncated_shares(lines)).set_index("variant")
    row = table.loc["full"]
    assert row["pass@1"] == pytest.approx(37.5) and row["pass@4"] == pytest.approx(100.0)
    assert row["se"] == pytest.approx(100 * np.std([0.5, 0.25], ddof=1) / 2**0.5)
    assert [row[f"right, rollout {place}"] for place in (1, 2, 3, 4)] == [1, 1, 0, 1]
    assert row["answered"] == row["at limit"] == 1.0 and row["truncated"] == 0.0
    assert table.loc["knorm head 0.5", "truncated"] == 1.0
    assert has_passes(cells)
    drawing = pass_chart(table.reset_index(), LIGHT).to_dict()
    points = [row for rows in drawing["datasets"].values() for row in rows if "value" in row]
    assert {(row["variant"], row["name"]): row["value"] for row in points}["full", "pass@4"] == 100.0


def test_without_a_row_there_are_columns() -> None:
    assert {"variant", "pass@1", "se"} <= set(pass_table([], {}).columns) and sampling([]) == ""
