"""The chart of score over removed fraction, as the browser gets it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import altair as alt

from harness.analysis.boards import board_of
from harness.analysis.run_reader import read
from harness.config.variants import Variant
from harness.results.schema import Cell
from leaderboard.charts import score_curves as charts
from leaderboard.charts.score_curves import curve_chart, points
from tests.harness.made_runs import FULL, both, lines_of, write_run


def cells(path: Path, control: float = 100, **more: Any) -> list[Cell]:
    lines = lines_of(FULL, both(control))
    for method, level in product(("knorm", "random"), (0.25, 0.5, 0.75)):
        lines += lines_of(Variant(method, "head", "removed", level), both(control * (1 - level)), **more)
    return board_of([read(write_run(path / "run", lines))], "toy", 64).cells


def valid(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification, after Altair has held it against Vega-Lite's schema."""
    alt.LayerChart.from_dict(spec)
    return spec


def layers(spec: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def rows(spec: dict[str, Any], layer: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["datasets"][layer["data"]["name"]])


def test_curves_bands_and_control(tmp_path: Path) -> None:
    spec = valid(curve_chart(cells(tmp_path), log=False))
    (line,), (band,), (rule,) = layers(spec, "line"), layers(spec, "area"), layers(spec, "rule")
    assert {row["curve"] for row in rows(spec, line)} == {"knorm head", "random head"}
    assert band["encoding"]["y"]["field"] == "low" and band["encoding"]["y2"]["field"] == "high"
    assert rule["mark"]["strokeDash"] and [row["score"] for row in rows(spec, rule)] == [100.0]
    assert line["encoding"]["x"]["field"] == "removed"
    tips = {tip["field"] for tip in layers(spec, "point")[0]["encoding"]["tooltip"]}
    assert {"variant", "score", "interval", "removed", "factor", "samples", "settings"} <= tips


def test_the_log_axis_is_over_the_compression_factor(tmp_path: Path) -> None:
    spec = valid(curve_chart(cells(tmp_path), log=True))
    (line,) = layers(spec, "line")
    assert line["encoding"]["x"]["field"] == "factor" and line["encoding"]["x"]["scale"]["type"] == "log"
    factors = {row["variant"]: row["factor"] for row in rows(spec, line)}
    assert factors["knorm head 0.75"] == 4.0


def test_the_legend_chooses_and_some_stand_out_at_first(tmp_path: Path) -> None:
    order = ["random head", "knorm head"]
    spec = valid(curve_chart(cells(tmp_path), log=False, order=order, bright=["random head"]))
    (chosen,) = [one for layer in spec["layer"] for one in layer.get("params", [])]
    assert chosen["bind"] == "legend" and chosen["value"] == [{"curve": "random head"}]
    (line,) = layers(spec, "line")
    assert line["encoding"]["color"]["scale"]["domain"] == ["random head", "knorm head"]
    assert line["encoding"]["opacity"]["condition"]["param"] == "chosen"


def test_the_legend_stands_under_the_chart_and_takes_none_of_its_room(tmp_path: Path) -> None:
    spec = valid(curve_chart(cells(tmp_path), log=False))
    assert spec["autosize"]["type"] == "fit-x" and spec["height"] == charts.PLOT
    coded = [one for layer in spec["layer"] for one in layer["encoding"].values() if "legend" in one]
    legends = [one["legend"] for one in coded]
    assert legends and all(legend["orient"] == "bottom" and not legend["symbolLimit"] for legend in legends)
    assert {legend["columns"]["expr"] for legend in legends} == {f"max(1, floor(width / {charts.COLUMN}))"}


def test_what_protection_binds_is_hollow(tmp_path: Path) -> None:
    spec = valid(curve_chart(cells(tmp_path, bound_by="protection"), log=False))
    (hollow,) = layers(spec, "point")
    assert hollow["mark"]["filled"] is False and len(rows(spec, hollow)) == 6


def test_the_floor_is_grey_points_without_a_line(tmp_path: Path) -> None:
    spec = valid(curve_chart(cells(tmp_path, control=10), log=False))
    assert not layers(spec, "line") and not layers(spec, "area")
    (grey,) = layers(spec, "point")
    assert "color" not in grey["encoding"] and len(rows(spec, grey)) == 6


def test_a_mean_of_some_subsets_is_called_that(tmp_path: Path) -> None:
    some = [cell.model_copy(update={"of_subsets": 13}) for cell in cells(tmp_path)]
    (line,) = layers(valid(curve_chart(some, log=False)), "line")
    assert line["encoding"]["y"]["title"] == "mean of 2 of 13 subsets"


def test_points_without_a_figure_are_left_out(tmp_path: Path) -> None:
    found = cells(tmp_path)
    overall = [cell for cell in found if cell.subset is None]
    overall[1].score, overall[2].removed_mean = None, 1.0
    assert list(points(found)["variant"]) == [overall[0].variant, *(cell.variant for cell in overall[3:])]
    assert points([]).empty
