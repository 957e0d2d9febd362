"""Memory and speed: figures that lines have, unchanged; where none has them, the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.results.schema import Line
from leaderboard.charts.speed import speed_chart
from leaderboard.data.levels import CONTROL
from leaderboard.data.speed import FIGURES, measured
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, RANDOM, both, lines_of, write_run
from tests.leaderboard.conftest import Page

MIB = 2**20
BYTES, PEAK, FIRST, RATE = FIGURES


def timed() -> list[Line]:
    full = lines_of(FULL, both(90.0, 3), physical_bytes=64 * MIB, metrics={"ttft_seconds": 2.0})
    knorm = lines_of(KNORM, both(50.0, 3), physical_bytes=33 * MIB, removed=0.48)
    knorm[0] = knorm[0].model_copy(update={"physical_bytes": 39 * MIB})
    return full + knorm + lines_of(RANDOM, both(10.0, 3))


def test_a_row_is_what_the_lines_have() -> None:
    table = measured(timed(), BYTES).set_index("variant")
    assert list(table.index) == ["full", "knorm head 0.5"]  # random has none, so it has no row
    row = table.loc["knorm head 0.5"]
    assert (row["value"], row["low"], row["high"], row["samples"]) == (34.0, 33.0, 39.0, 6)
    assert row["removed"] == pytest.approx(0.48)
    assert table.loc["full", "curve"] == CONTROL and table.loc["full", "value"] == 64.0
    failed = lines_of(KNORM, {"red": [None, 50.0]}, physical_bytes=MIB)
    assert measured(failed, BYTES)["samples"].tolist() == [1]
    assert measured(timed(), PEAK).empty and measured(timed(), FIRST)["variant"].tolist() == ["full"]


def test_the_chart_has_a_point_per_variant_and_the_control_as_a_rule() -> None:
    drawing = speed_chart(measured(timed(), BYTES), BYTES, ["knorm"]).to_dict()
    assert sorted(row["value"] for rows in drawing["datasets"].values() for row in rows) == [34.0, 64.0]
    assert {layer["mark"]["type"] for layer in drawing["layer"]} == {"line", "point", "rule"}


def test_a_run_with_figures_is_shown(page: Page, results: Path) -> None:
    write_run(results / "run", timed())
    app = page("speed")
    assert [heading.value for heading in app.subheader] == ["Physical cache", "Time to first token"]
    assert app.dataframe[0].value.set_index("variant").loc["knorm head 0.5", "value"] == 34.0
    assert "peak memory, tokens per second" in app.info[0].value


def test_where_nothing_was_measured_the_page_shows_no_figure(page: Page) -> None:
    app = page("speed", COMMITTED)
    assert not app.subheader and not app.dataframe
    assert "physical cache, peak memory, time to first token, tokens per second" in app.info[0].value
    assert any("physical_bytes" in text.value for text in app.markdown)
