"""What thresholds remove: by histograms against what runs measured, and the slider over them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from harness.analysis.boards import Board
from harness.analysis.summary import summarise
from harness.results.schema import Line
from harness.results.score_histograms import Histogram, told
from leaderboard.charts.theme import DARK, LIGHT
from leaderboard.charts.thresholds import budget_chart, spread_chart, threshold_chart
from leaderboard.data import histograms, thresholds
from leaderboard.data.histograms import Prompt, Source
from leaderboard.data.library import lines_of as lines_of_group
from leaderboard.data.library import open_library
from leaderboard.data.threshold_axis import axis_of
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FACTS, FULL, KVZAP, both, changed, lines_of

PLACE = "needles, 1,024 tokens"


def bins(low: float, high: float, counts: list[int], sample: str = "s", cached: int = 10_000) -> Prompt:
    setting = {"sample_id": sample, "method": "kvzap_mlp", "options": "{}", "window": 128, "sinks": 0}
    return Prompt("toy", "red", sample, Histogram(**setting, low=low, high=high, counts=counts, cached=cached))


def normal_prompts() -> tuple[list[Prompt], list[np.ndarray]]:
    scores = [np.random.default_rng(place).normal(-4 + place, 2, 3_000) for place in range(5)]
    counts = [np.histogram(own.clip(-20, 4), 240, (-20, 4))[0].tolist() for own in scores]
    return [bins(-20, 4, own, f"s{place}", 3_384) for place, own in enumerate(counts)], scores


def points(*taus: float, places: tuple[str, ...] = ("toy",)) -> pd.DataFrame:
    found = [(place, tau, 0.5, 50.0, 40.0, 60.0, 90.0) for place in places for tau in taus]
    return pd.DataFrame(found, columns=thresholds.POINTS)


def board_of(lines: list[Line]) -> Board:
    summary = summarise(lines, FACTS, True)
    parts = {name: getattr(summary, name) for name in ("cells", "ranks", "curves", "pairs", "alarms")}
    return Board("tiny", "toy", 64, [], {}, **parts)


def test_the_committed_runs_thresholds_are_told_within_their_bin() -> None:
    (group,) = open_library([COMMITTED]).groups
    stored, broken = histograms.stored(group.entries)
    lines = lines_of_group(group)
    assert not broken and len(stored) == 60
    checked = 0
    for source in thresholds.sources(lines, []):
        some = histograms.prompts_of(stored, {PLACE: group}, source)
        by_sample = {prompt.sample_id: prompt.histogram for prompt in some}
        assert len(some) == 20
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
    some, scores = normal_prompts()
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
    lines = lines_of(FULL, both(90.0, 4))
    for index, line in enumerate(lines_of(KVZAP, both(70.0, 4))):
        lines.append(line.model_copy(update={"removed_context": 0.1 * index}))
    source = Source.of(lines[-1])
    assert thresholds.thresholds(lines, source) == {-4.0: None}
    table = thresholds.measured(lines, source, -4.0)
    assert list(table["removed"]) == pytest.approx([0.1 * index for index in range(8)])
    assert thresholds.measured(lines, source, -3.0).empty
    assert list(thresholds.spread(table, "subset")["name"]) == ["red", "blue"]
    everywhere = thresholds.measured_everywhere({"toy": lines, "other": []}, source, -4.0, by_subset=True)
    assert list(everywhere["name"]) == ["toy, red"] * 4 + ["toy, blue"] * 4
    boxes = thresholds.spread(table.assign(name="toy"), "name")
    (row,) = boxes.to_dict("records")
    figures = [row[name] for name in ("prompts", "mean", "min", "q25", "median", "q75", "max")]
    assert figures == pytest.approx([8, 0.35, 0.0, 0.175, 0.35, 0.525, 0.7])
    for theme in (LIGHT, DARK):
        drawing = spread_chart(table.assign(name="toy"), boxes, "name", "removed", theme).to_dict()
        assert sorted(map(len, drawing["datasets"].values())) == [1, 8]


def test_questions_on_a_context_are_one_prompt() -> None:
    lines = []
    for place in range(3):
        more = {"context_id": "c", "question_index": place, "removed": 0.4}
        lines += lines_of(KVZAP, {f"q{place}": [30.0 * place]}, **more)
    (row,) = thresholds.measured(lines, Source.of(lines[0]), -4.0).to_dict("records")
    assert (row["removed"], row["score"]) == (pytest.approx(0.4), 30.0)


@pytest.mark.parametrize("mode", ["aware", "aware-reused"])
def test_pruning_with_the_question_in_view_is_no_threshold_of_the_context(mode: str) -> None:
    agnostic = lines_of(KVZAP, both(50.0), removed=0.5)
    aware = [
        line
        for tau in (-3.0, -4.0)
        for line in lines_of(changed(KVZAP, level=tau, query_mode=mode), both(50.0), removed=0.9)
    ]
    source, lines = Source.of(agnostic[0]), [*agnostic, *aware]
    assert thresholds.measured(lines, source, -4.0)["removed"].tolist() == [0.5] * 24
    assert list(thresholds.thresholds(lines, source)) == [-4.0]
    assert thresholds.sources(aware, []) == [] and thresholds.sources(lines, []) == [source]
    some = [bins(-8.0, 0.0, [5_000, 5_000], agnostic[0].sample_id)]
    table = thresholds.check(some, {"toy": lines}, source)
    assert table[["tau", "prompts", "measured", "outside"]].to_numpy().tolist() == [[-4.0, 1, 0.5, 0]]


def test_budgets_are_compared_on_the_same_scores() -> None:
    head = lines_of(changed(KVZAP, budget="head", level_kind="removed", level=0.5), both(80.0), removed=0.5)
    board = board_of([*lines_of(FULL, both(90.0)), *lines_of(KVZAP, both(90.0), requested=0.5, removed=0.5), *head])
    cells = thresholds.budget_cells(board.cells, "kvzap_mlp", KVZAP.options)
    assert [cell.budget for cell in cells] == ["threshold", "head"]
    alone = [cell for cell in board.cells if cell.budget != "head"]
    assert thresholds.budget_cells(alone, "kvzap_mlp", KVZAP.options) == []
    drawing = budget_chart(cells, next(cell for cell in board.cells if cell.level_kind == "none")).to_dict()
    rows = [row for data in drawing["datasets"].values() for row in data if "name" in row]
    assert {(row["name"], row["score"]) for row in rows} == {("kvzap_mlp threshold", 90.0), ("kvzap_mlp head", 80.0)}
    (pair,) = thresholds.budget_pairs(board, {cell.variant for cell in cells})
    assert str(pair["a − b"]).startswith("+10.0") and pair["samples"] == 24


def test_the_threshold_chart_has_the_measured_scores() -> None:
    some, _ = normal_prompts()
    lines = [*lines_of(FULL, both(90.0)), *lines_of(KVZAP, both(70.0), removed=0.4)]
    source, boards = Source.of(lines[-1]), {"toy": board_of(lines)}
    found = thresholds.measured_points(boards, source, by_subset=False)
    (row,) = found.itertuples(index=False, name=None)
    assert row[0] == "toy" and row[1:] == pytest.approx((-4.0, 0.4, 70.0, 70.0, 70.0, 90.0))
    assert list(thresholds.measured_points(boards, source, by_subset=True)["name"]) == ["red", "blue"]
    drawing = [part.to_dict() for part in threshold_chart(histograms.curves(some), found, -4.2, (-8.0, 2.0), LIGHT)]
    assert len(drawing) == 2 and all([{"tau": -4.2}] in part["datasets"].values() for part in drawing)


@pytest.mark.parametrize(
    ("table", "labelled"),
    [
        (points(-4.0, -2.0), [-4.0, -2.0]),
        (points(-4.0, places=("toy", "other")), []),
        (points(-4.0, -3.95, 0.0), [0.0]),
    ],
)
def test_scores_stand_beside_lone_thresholds(table: pd.DataFrame, labelled: list[float]) -> None:
    upper, _ = threshold_chart(histograms.curves(normal_prompts()[0]), table, -4.2, (-8.0, 2.0), LIGHT)
    drawing = upper.to_dict()
    (layer,) = [one for one in drawing["layer"] if one["mark"].get("type") == "text"]
    name = layer.get("data", drawing.get("data", {})).get("name")
    assert [row["tau"] for row in drawing["datasets"][name]] == labelled


def test_the_slider_goes_over_the_bins_that_matter() -> None:
    axis = axis_of([bins(-20.0, 4.0, [0] * 100 + [1] * 100 + [0] * 40)], points(-4.0, -12.5))
    assert (axis.low, axis.high, axis.step, axis.start, axis.digits) == (-12.5, 0.0, pytest.approx(0.01), -12.5, 2)
    axis = axis_of([bins(0.0, 1.0, [1] * 8)], points())
    assert (axis.low, axis.high, axis.start) == (0.0, 1.0, 0.5) and axis.step == 0.0125 and axis.points.empty


@pytest.mark.parametrize("tau", [1e308, -1e308, 1e15, 5.0])
def test_a_threshold_beyond_all_scores_does_not_stretch_the_axis(tau: float) -> None:
    axis = axis_of([bins(-20.0, 4.0, [1] * 240)], points(tau, -4.0))
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
    odd, ordinary = bins(low, high, [1] * count), bins(-20.0, 4.0, [1] * 240)
    axis = axis_of([odd], points())
    assert axis.low < axis.high and axis.low <= axis.start <= axis.high and axis.step > 0
    bin_ = max((high - low) / count, 4 * np.spacing(high))
    assert abs(axis.low - low) < 1.001 * bin_ and abs(axis.high - high) < 1.001 * bin_
    beside = axis_of([odd, ordinary], points())
    assert beside.low < beside.high
