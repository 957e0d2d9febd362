"""What thresholds remove: told from histograms, against the pairs themselves and against what runs measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.analysis.summary import summarise
from harness.errors import HarnessError
from harness.results.run_folder import Line
from harness.results.score_histograms import Histogram, Told, read_histograms, told
from leaderboard.charts.theme import DARK, LIGHT
from leaderboard.charts.thresholds import budget_cells, budget_chart, spread_chart, threshold_chart
from leaderboard.data import histograms, thresholds
from leaderboard.data.differences import lines_of
from leaderboard.data.histograms import Prompt, Source
from leaderboard.data.library import open_library
from leaderboard.views import adaptivity_sections
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FACTS, FULL, KVZAP, both
from tests.harness.made_runs import lines_of as made

PLACE = "needles, 1,024 tokens"


def histogram(scores: np.ndarray, protected: int = 0, low: float = -20.0, high: float = 4.0, **more: Any) -> Histogram:
    counts, _ = np.histogram(scores.clip(low, high), 240, (low, high))
    row = {
        "sample_id": "s",
        "method": "kvzap_mlp",
        "options": "{}",
        "window": 128,
        "sinks": 0,
        "low": low,
        "high": high,
    }
    return Histogram(**{**row, "counts": counts.tolist(), "cached": len(scores) + protected, **more})


def prompts(count: int = 5) -> tuple[list[Prompt], list[np.ndarray]]:
    random = np.random.default_rng(0)
    scores = [random.normal(-4 + place, 2, 3_000) for place in range(count)]
    return [Prompt("toy", "red", f"s{i}", histogram(one, 384)) for i, one in enumerate(scores)], scores


def test_told_holds_the_share_of_scores_under_any_threshold() -> None:
    some, scores = prompts()
    for prompt, own in zip(some, scores, strict=True):
        for tau in np.random.default_rng(1).uniform(-12, 3, 50):
            exact = (own < tau).sum() / (len(own) + 384)
            least, likely, most = told(prompt.histogram, float(tau))
            assert least <= exact <= most and least <= likely <= most
            assert abs(likely - exact) <= max(prompt.histogram.counts) / prompt.histogram.cached


def test_on_an_edge_there_is_no_error() -> None:
    (prompt, *_), (own, *_) = prompts()
    for tau in (-5.0, -4.4, -1.1):
        exact = (own < tau).sum() / (len(own) + 384)
        assert told(prompt.histogram, tau) == Told(exact, exact, exact)


def test_beyond_the_ends_the_end_bins_are_open() -> None:
    one = histogram(np.array([-30.0, -25.0, 0.0, 9.0]), protected=4)
    assert told(one, -40.0) == Told(0.0, 0.0, 0.25)
    assert told(one, 4.0) == Told(0.375, 0.5, 0.5)
    assert told(one, float("inf")).likely == 0.5 and told(one, float("-inf")).likely == 0.0


def test_the_committed_runs_thresholds_are_told_within_their_bin() -> None:
    (group,) = open_library([COMMITTED]).groups
    entries = group.entries
    stored, broken = histograms.stored(entries)
    lines = lines_of(group)
    assert not broken and len(stored) == 60
    checked = 0
    for source in thresholds.sources(lines, []):
        some = histograms.prompts_of(stored, {PLACE: group}, source)
        assert len(some) == 20
        by_sample = {prompt.sample_id: prompt.histogram for prompt in some}
        for line in lines:
            if line.budget == "threshold" and Source.of(line) == source:
                assert line.level is not None and line.removed_context is not None
                one = by_sample[line.sample_id]
                assert one.cached == line.cached_pairs
                below = [sum(one.counts[:place]) for place in range(len(one.counts) + 1)]
                place = int((line.level - one.low) / one.width)
                assert below[place] <= line.removed_context * one.cached + 1e-6 <= below[place + 1] + 1e-5
                expected = told(one, line.level)
                assert abs(expected.likely - line.removed_context) <= expected.most - expected.least
                checked += 1
        table = thresholds.check(some, {PLACE: lines}, source)
        assert list(table["prompts"]) == [20] * 4 and set(table["outside"]) == {0}
        measured = [thresholds.measured(lines, source, tau)["removed"].mean() for tau in table["tau"]]
        assert list(table["measured"]) == pytest.approx(measured)
    assert checked == 160


def test_curves_are_the_shares_at_the_edges() -> None:
    some, scores = prompts()
    table = histograms.curves(some)
    for tau in (-6.0, -3.0):
        row = table.iloc[(table["tau"] - tau).abs().argmin()]
        shares = [(own < tau).mean() * 3_000 / 3_384 for own in scores]
        assert row["mean"] == pytest.approx(np.mean(shares))
        assert [row["low"], row["high"]] == pytest.approx(list(np.quantile(shares, [0.1, 0.9])))
    first, last, width = histograms.span(some)
    assert width == pytest.approx(0.1)
    assert first <= min(map(np.min, scores)) and last >= min(4.0, max(map(np.max, scores)))


def test_removed_by_prompt_and_its_quartiles() -> None:
    lines = made(FULL, both(90.0, 4))
    for index, line in enumerate(made(KVZAP, both(70.0, 4))):
        lines.append(line.model_copy(update={"removed_context": 0.1 * index}))
    source = Source.of(lines[-1])
    assert thresholds.thresholds(lines, source) == {-4.0: None}
    table = thresholds.measured(lines, source, -4.0)
    assert list(table["removed"]) == pytest.approx([0.1 * index for index in range(8)])
    assert thresholds.measured(lines, source, -3.0).empty
    row = thresholds.spread(table.assign(name="toy"), "name").iloc[0]
    assert [row[k] for k in ("prompts", "mean", "min", "q25", "median", "q75", "max")] == pytest.approx(
        [8, 0.35, 0.0, 0.175, 0.35, 0.525, 0.7]
    )
    for look in (LIGHT, DARK):
        boxes = thresholds.spread(table, "subset")
        assert spread_chart(table, boxes, "subset", "removed", look).to_dict()


def test_questions_on_a_context_are_one_prompt() -> None:
    lines = []
    for question in range(3):
        lines += made(KVZAP, {f"q{question}": [30.0 * question]}, context_id="c", question_index=question, removed=0.4)
    table = thresholds.measured(lines, Source.of(lines[0]), -4.0)
    assert len(table) == 1 and table.iloc[0]["removed"] == pytest.approx(0.4) and table.iloc[0]["score"] == 30.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"counts": []}, "at least 1"),
        ({"counts": [5, -1]}, "0 or more"),
        ({"cached": 3}, "no more than cached"),
        ({"low": 4.0}, "low must be less"),
        ({"high": None}, "valid number"),
        ({"counts": [1] * 10_001}, "at most 10000"),
    ],
)
def test_a_damaged_row_is_told_by_its_number(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    good = histogram(np.zeros(10)).model_dump()
    path = tmp_path / "histograms.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
    with pytest.raises(HarnessError, match=f"histograms.jsonl, line 2: .*{said}"):
        read_histograms(path)
    path.write_text(json.dumps(good) + "\n" + json.dumps(good)[:50])
    assert len(read_histograms(path)) == 1
    assert read_histograms(tmp_path / "none") == []


def test_budgets_are_compared_on_the_same_scores() -> None:
    head = made(KVZAP, both(80.0), budget="head", level_kind="removed", level=0.5, removed=0.5)
    lines = [*made(FULL, both(90.0)), *made(KVZAP, both(90.0), requested=0.5, removed=0.5)]
    lines += [line.model_copy(update={"variant": "kvzap_mlp head 0.5"}) for line in head]
    summary = summarise(lines, FACTS, True)
    cells = budget_cells(summary["cells"], "kvzap_mlp", KVZAP.options)
    assert [cell["budget"] for cell in cells] == ["threshold", "head"]
    assert (
        budget_cells([cell for cell in summary["cells"] if cell["budget"] != "head"], "kvzap_mlp", KVZAP.options) == []
    )
    drawing = budget_chart(cells, summary["cells"][2]).to_dict()
    rows = [row for data in drawing["datasets"].values() for row in data if "name" in row]
    assert {(row["name"], row["score"]) for row in rows} == {("kvzap_mlp threshold", 90.0), ("kvzap_mlp head", 80.0)}

    class Board:
        pairs = summary["pairs"]

    (pair,) = adaptivity_sections.budget_pairs(Board(), {cell["variant"] for cell in cells})  # type: ignore[arg-type]
    assert pair["a − b"].startswith("+10.0") and pair["samples"] == 24


def test_the_threshold_chart_has_the_measured_scores() -> None:
    some, _ = prompts()
    lines = [*made(FULL, both(90.0)), *made(KVZAP, both(70.0), removed=0.4)]
    source = Source.of(lines[-1])

    class Board:
        cells = summarise(lines, FACTS, True)["cells"]

    points = adaptivity_sections.measured_points({"toy": Board()}, source, False)  # type: ignore[dict-item]
    (row,) = points.to_dict("records")
    told = {"tau": -4.0, "removed": 0.4, "score": 70.0, "low": 70.0, "high": 70.0, "full": 90.0}
    assert row.pop("name") == "toy" and row == pytest.approx(told)
    assert len(adaptivity_sections.measured_points({"toy": Board()}, source, True)) == 2  # type: ignore[dict-item]
    drawing = [part.to_dict() for part in threshold_chart(histograms.curves(some), points, -4.2, (-8.0, 2.0), LIGHT)]
    assert len(drawing) == 2
    assert all([{"tau": -4.2}] in part["datasets"].values() for part in drawing)


def threshold(tau: float, score: float = 50.0, **more: Any) -> list[Line]:
    return made(replace(KVZAP, level=tau), both(score), **more)


def points(*taus: float, places: tuple[str, ...] = ("toy",)) -> pd.DataFrame:
    row = {"removed": 0.5, "score": 50.0, "low": 40.0, "high": 60.0, "full": 90.0}
    found = [{"name": place, "tau": tau, **row} for place in places for tau in taus]
    return pd.DataFrame(found, columns=["name", "tau", *row])


def bins(low: float, high: float, counts: list[int]) -> list[Prompt]:
    one = histogram(np.zeros(1)).model_dump()
    return [
        Prompt("toy", "red", "s", Histogram(**{**one, "low": low, "high": high, "counts": counts, "cached": 10_000}))
    ]


def test_pruning_with_the_question_in_view_is_no_threshold_of_the_context() -> None:
    agnostic = threshold(-4.0, removed=0.5)
    for mode in ("aware", "aware-reused"):
        aware = [
            line.model_copy(update={"query_mode": mode, "variant": f"{line.variant} {mode}", "removed_context": 0.9})
            for line in threshold(-3.0) + agnostic
        ]
        source, lines = Source.of(agnostic[0]), [*agnostic, *aware]
        assert thresholds.measured(lines, source, -4.0)["removed"].tolist() == [0.5] * 24
        assert list(thresholds.thresholds(lines, source)) == [-4.0]
        assert thresholds.sources(aware, []) == [] and thresholds.sources(lines, []) == [source]
        some = [Prompt("toy", "red", agnostic[0].sample_id, bins(-8.0, 0.0, [5_000, 5_000])[0].histogram)]
        table = thresholds.check(some, {"toy": lines}, source)
        assert table[["tau", "prompts", "measured", "outside"]].to_numpy().tolist() == [[-4.0, 1, 0.5, 0]]


def test_the_slider_goes_over_the_bins_that_matter() -> None:
    axis = adaptivity_sections.axis_of(bins(-20.0, 4.0, [0] * 100 + [1] * 100 + [0] * 40), points(-4.0, -12.5))
    assert (axis.low, axis.high, axis.step, axis.start, axis.digits) == (-12.5, 0.0, pytest.approx(0.01), -12.5, 2)
    axis = adaptivity_sections.axis_of(bins(0.0, 1.0, [1] * 8), points())
    assert (axis.low, axis.high, axis.start) == (0.0, 1.0, 0.5) and axis.step == 0.0125 and axis.points.empty


@pytest.mark.parametrize("tau", [1e308, -1e308, 1e15, 5.0])
def test_a_threshold_beyond_all_scores_does_not_stretch_the_axis(tau: float) -> None:
    axis = adaptivity_sections.axis_of(bins(-20.0, 4.0, [1] * 240), points(tau, -4.0))
    assert (axis.low, axis.high, axis.start) == (-20.0, 4.0, -4.0)
    assert axis.points["tau"].tolist() == [-4.0] and float(axis.beyond) == tau


@pytest.mark.parametrize(
    ("low", "high", "count"),
    [
        (0.0, 1e-6, 240),
        (0.0, 1e-9, 1),
        (-1e-12, 1e-12, 100),
        (1.0, 1.0 + 1e-9, 100),
        (1e15, 1e15 + 0.125, 100),
        (-8e307, 8e307, 2),
        (1e308, 1.7e308, 2),
        (0.0, 1e-300, 3),
    ],
)
def test_bins_of_any_width_have_a_slider(low: float, high: float, count: int) -> None:
    some = bins(low, high, [1] * count)
    axis = adaptivity_sections.axis_of(some, points())
    assert axis.low < axis.high and axis.low <= axis.start <= axis.high and axis.step > 0
    bin_ = max((high - low) / count, 4 * np.spacing(high))
    assert abs(axis.low - low) < 1.001 * bin_ and abs(axis.high - high) < 1.001 * bin_
    far = histogram(np.zeros(1))  # beside bins of an ordinary width
    both_of_them = adaptivity_sections.axis_of([*some, Prompt("toy", "red", "t", far)], points())
    assert both_of_them.low < both_of_them.high


def test_scores_stand_beside_lone_thresholds() -> None:
    def texts(table: pd.DataFrame) -> list[float]:
        upper, _ = threshold_chart(histograms.curves(prompts()[0]), table, -4.2, (-8.0, 2.0), LIGHT)
        drawing = upper.to_dict()
        (layer,) = [one for one in drawing["layer"] if one["mark"].get("type") == "text"]
        name = layer.get("data", drawing.get("data", {})).get("name")
        return [row["tau"] for row in drawing["datasets"][name]]

    assert texts(points(-4.0, -2.0)) == [-4.0, -2.0]
    assert texts(points(-4.0, places=("toy", "other"))) == []
    assert texts(points(-4.0, -3.95, 0.0)) == [0.0]
