"""Differences by subset, group and overall, against brute force."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from harness.analysis.summary import summarise
from harness.results.schema import Cell, Facts, Line
from leaderboard.charts.differences import MOST_COLUMNS, difference_charts
from leaderboard.charts.theme import DARK, LIGHT
from leaderboard.data.differences import (
    GROUP,
    SUBSET,
    Column,
    ColumnDifference,
    cell_text,
    columns,
    difference_table,
    differences,
    siblings,
    titles,
    without_outlier,
)
from leaderboard.data.levels import level_name, levels
from leaderboard.data.library import open_library
from tests.harness.made_runs import FACTS, FULL, KEYDIFF, KNORM, KVZAP, both, changed, lines_of, write_run


def random_scores(seed: int, count: int = 12) -> dict[str, list[float]]:
    source = random.Random(seed)
    return {subset: [float(source.randrange(0, 101, 5)) for _ in range(count)] for subset in ("red", "blue")}


def overall(lines: list[Line], facts: dict[str, Facts] = FACTS) -> list[Cell]:
    return [cell for cell in summarise(lines, facts, True).cells if cell.subset is None]


def of_red(lines: list[Line]) -> list[ColumnDifference]:
    """Those of pruned variants in the column of one subset."""
    rows = differences(lines, columns(["red"], 1, {}))
    return [row for row in rows if row.kind == SUBSET and row.variant != "full"]


def on_contexts(lines: list[Line], questions: int) -> list[Line]:
    """The same lines, each ``questions`` neighbours of a subset on one context."""
    return [
        line.model_copy(update={"context_id": f"{line.subset} {int(line.sample_id.rpartition('/')[2]) // questions}"})
        for line in lines
    ]


def test_each_cell_is_the_mean_of_the_samples_differences() -> None:
    full, pruned = random_scores(1), random_scores(2)
    lines = [*lines_of(KNORM, pruned), *lines_of(FULL, full)]
    wanted = columns(["red", "blue"], 3, {"colours": ["red", "blue", "green"], "none": ["green"]})
    assert [column.label for column in wanted] == ["mean of 2 of 3", "colours (2 of 3)", "red", "blue"]
    rows = {(row.variant, row.column): row for row in differences(lines, wanted)}
    both_subsets = ("red", "blue")
    for name, subsets in {"all": both_subsets, "colours": both_subsets, "red": ("red",), "blue": ("blue",)}.items():
        expected = fmean(fmean(np.subtract(pruned[subset], full[subset])) for subset in subsets)
        row = rows["knorm head 0.5", name]
        assert row.difference == pytest.approx(expected)
        assert row.score is not None and row.control is not None and row.low is not None and row.high is not None
        assert row.score - row.control == pytest.approx(expected) and row.tie == (row.low <= 0 <= row.high)
        assert rows["full", name].score == pytest.approx(fmean(fmean(full[subset]) for subset in subsets))


def test_the_overall_column_is_the_summarys() -> None:
    lines = [
        *lines_of(FULL, random_scores(1)),
        *lines_of(KNORM, random_scores(2)),
        *lines_of(KEYDIFF, random_scores(3)),
    ]
    wanted = columns(["red", "blue"], 2, {})[:1]
    given, own = (differences(lines, wanted, pairs=pairs) for pairs in (summarise(lines, FACTS, True).pairs, ()))
    for one, other in zip(given, own, strict=True):
        assert (one.p_holm, one.difference) == pytest.approx((other.p_holm, other.difference))


def test_a_tie_over_all_samples_is_that_of_the_ranks() -> None:
    """Of 40 variants one that loses 6 of 24 is a tie after Holm's correction, though not by its own interval."""
    lines = lines_of(FULL, both(100.0))
    for number in range(40):
        scores = [0.0] * 3 + [100.0] * 9
        lines += lines_of(changed(KEYDIFF, window=number), {"red": scores, "blue": scores})
    pairs = summarise(lines, FACTS, True).pairs
    told = {pair.a: pair.tie for pair in pairs if pair.against == "control"}
    rows = [row for row in differences(lines, columns(["red", "blue"], 2, {})[:1], pairs=pairs) if row.tie is not None]
    assert {row.variant: row.tie for row in rows} == told and set(told.values()) == {True}
    assert all(row.high is not None and row.high < 0 for row in rows)


def test_ten_samples_show_a_plain_loss_among_many_variants() -> None:
    lines = lines_of(FULL, {"red": [100.0] * 10})
    for number in range(60):
        lines += lines_of(changed(KEYDIFF, window=number), {"red": [0.0] * 10})
    rows = of_red(lines)
    assert len(rows) == 60
    assert {(row.difference, row.tie, (row.p_holm or 0) > 0.1) for row in rows} == {(-100.0, False, True)}


@pytest.mark.parametrize(
    ("count", "lost", "has_interval", "tie"),
    [
        (5, 5, False, True),  # p is 2 of 32 ways to throw the coins
        (7, 7, False, False),  # 2 of 128
        (10, 4, True, True),  # p is 1/8, though the interval leaves out 0
        (10, 6, True, False),
    ],
)
def test_a_tie_of_few_samples(count: int, lost: int, has_interval: bool, tie: bool) -> None:
    pruned = [0.0] * lost + [100.0] * (count - lost)
    (row,) = of_red([*lines_of(FULL, {"red": [100.0] * count}), *lines_of(KNORM, {"red": pruned})])
    assert (row.high is not None and row.high < 0) == has_interval and row.tie == tie


def test_a_subset_that_one_lacks_is_not_compared_and_no_control_no_rows() -> None:
    wanted = columns(["red", "blue"], 2, {})
    lines = [*lines_of(FULL, both(80.0)), *lines_of(KNORM, {"red": [60.0] * 12})]
    rows = {row.column: row for row in differences(lines, wanted) if row.variant != "full"}
    assert rows["all"].difference is None and rows["all"].score is None
    assert rows["blue"].difference is None and rows["red"].difference == -20.0
    assert differences(lines_of(KNORM, both(60.0)), wanted) == []


def test_cells_draw_whole_contexts() -> None:
    scores = np.repeat(np.random.default_rng(0).choice([0.0, 100.0], 12), 10).tolist()
    alone = [*lines_of(FULL, {"red": [50.0] * 120}), *lines_of(KNORM, {"red": scores})]
    shared = on_contexts(alone, 10)
    (row,), (by_question,) = of_red(shared), of_red(alone)
    pair = summarise(shared, FACTS, True).pairs[0]
    assert (row.low, row.high) == pytest.approx((pair.low, pair.high))
    assert row.low is not None and row.high is not None and by_question.low is not None and by_question.high is not None
    assert row.high - row.low > 2.5 * (by_question.high - by_question.low)


def test_floor_tie_and_difference_read_without_colour() -> None:
    full = {"red": [100.0] * 12, "blue": [0.0] * 11 + [100.0]}
    none = {"red": [0.0] * 12, "blue": [0.0] * 12}
    lines = [*lines_of(FULL, full), *lines_of(KNORM, none), *lines_of(KEYDIFF, full)]
    wanted = columns(["red", "blue"], 2, {})
    table = difference_table(differences(lines, wanted), overall(lines), [(c.kind, c.name, c.label) for c in wanted])
    text = {(row["variant"], row["title"]): row["text"] for row in table.to_dict("records")}
    assert (text["full", "red"], text["full", "blue"]) == ("100.0", "8.3*")
    assert (text["knorm head 0.5", "red"], text["knorm head 0.5", "blue"]) == ("−100.0", "−8.3*")
    assert text["keydiff head 0.5", "red"] == "+0.0≈"

    def fills(theme: object, grey_ties: bool = True) -> dict[tuple[str, str], str]:
        (chart,) = difference_charts(table, theme, grey_ties)  # type: ignore[arg-type]
        (data,) = chart.to_dict()["datasets"].values()
        return {(row["variant"], row["column"]): row["fill"] for row in data}

    for theme in (LIGHT, DARK):
        fill = fills(theme)
        assert (fill["full", "red"], fill["knorm head 0.5", "red"]) == ("none", "colour")
        assert fill["keydiff head 0.5", "red"] == fill["knorm head 0.5", "blue"] == "grey"
    assert fills(LIGHT, grey_ties=False)["keydiff head 0.5", "red"] == "colour"
    nothing = ColumnDifference("x", SUBSET, "red", None, 1.0, None, None, None, None, None, 0, False)
    assert cell_text(nothing, is_control=False) == "–"


def test_rows_stand_level_by_level_under_its_name() -> None:
    lines = lines_of(FULL, both(90.0))
    for level in (0.75, 0.5):
        lines += [line for one in (KNORM, KEYDIFF) for line in lines_of(changed(one, level=level), both(50.0))]
    wanted = columns(["red"], 1, {})[:1]
    table = difference_table(differences(lines, wanted), overall(lines), [("overall", "all", "all")])
    (chart,) = difference_charts(table, LIGHT)
    y = chart.to_dict()["layer"][0]["encoding"]["y"]
    of_level = [[f"removed {level}", f"knorm head {level}", f"keydiff head {level}"] for level in (0.75, 0.5)]
    assert y["sort"] == y["scale"]["domain"] == ["full cache", *of_level[0], *of_level[1]]
    assert '["removed 0.75", "removed 0.5"]' in y["axis"]["labelFontWeight"]["condition"]["test"]
    at_half = difference_table(
        differences(lines, wanted), overall(lines)[:1] + overall(lines)[3:], [("overall", "all", "x")]
    )
    assert list(at_half["name"]) == ["full cache", "knorm head", "keydiff head"]  # short where that is enough


def test_many_columns_stand_below_each_other() -> None:
    subsets = [f"subset {number}" for number in range(29)]
    lines = [*lines_of(FULL, {name: [100.0] for name in subsets}), *lines_of(KNORM, {name: [0.0] for name in subsets})]
    wanted = columns(subsets, 29, {"some": subsets[:3]})
    rows, cells = differences(lines, wanted), overall(lines, {"toy": Facts(subsets=29, chance=0.0)})
    table = difference_table(rows, cells, [(c.kind, c.name, c.label) for c in wanted])
    shown = [chart.to_dict()["layer"][0]["encoding"]["x"]["sort"] for chart in difference_charts(table, LIGHT)]
    assert shown[0] == ["all", "some"] and [len(names) for names in shown[1:]] == [10, 10, 9]
    assert [name for names in shown[1:] for name in names] == subsets and max(map(len, shown)) <= MOST_COLUMNS
    empty = difference_table([], cells, [("overall", "all", "all")])
    assert {"level", "variant", "title", "difference", "floor"} <= set(empty) and difference_charts(empty, LIGHT) == []


def test_no_two_titles_are_the_same() -> None:
    wanted = columns(["red", "blue"], 2, {"red": ["red", "blue"]})
    rows = differences([*lines_of(FULL, {"red": [10.0], "blue": [90.0]}), *lines_of(KNORM, both(1.0, 1))], wanted)
    assert [title for *_, title in titles(wanted, rows)] == ["all", "red, group", "red, subset *", "blue"]


def test_levels_are_in_order_and_named() -> None:
    chosen = lines_of(changed(KVZAP, level=-5.0), both(1.0), requested=0.25)
    lines = [*lines_of(FULL, both(1.0)), *lines_of(KVZAP, both(1.0)), *lines_of(KNORM, both(1.0)), *chosen]
    assert [level_name(level) for level in levels(overall(lines))] == ["removed 0.25", "removed 0.5", "tau -4"]
    assert level_name(None) == "full cache"


def test_two_thresholds_of_one_level_have_names_of_their_own() -> None:
    taus = [changed(KVZAP, level=tau) for tau in (-4.0, -4.1)]
    lines = [*lines_of(FULL, both(90.0)), *lines_of(KNORM, both(80.0))]
    lines += [line for one in taus for line in lines_of(one, both(70.0), removed=0.5, requested=0.5)]
    table = difference_table(differences(lines, columns(["red"], 1, {})), overall(lines), [("overall", "all", "all")])
    assert list(table["name"]) == ["full cache", "knorm head", *(one.label for one in taus)]


def test_lengths_of_a_model_are_siblings(tmp_path: Path) -> None:
    for length in (64, 128):
        lines = [*lines_of(FULL, both(90.0), length=length), *lines_of(KNORM, both(50.0), length=length)]
        write_run(tmp_path / str(length), lines)
    write_run(tmp_path / "other", [*lines_of(FULL, both(90.0)), *lines_of(KEYDIFF, both(50.0))], dtype="bfloat16")
    groups = open_library([tmp_path]).groups
    small = next(group for group in groups if group.part.length == 64 and group.part.dtype == "float32")
    found = siblings(groups, small)
    assert [(group.part.length, group.part.dtype) for group in found] == [(64, "float32"), (128, "float32")]


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (
            columns(["trec", "qasper", "samsum"], 3, {"few shot": ["trec", "samsum"], "trec alone": ["trec"]}),
            [
                Column(GROUP, "without trec", ("qasper", "samsum"), 2),
                Column(GROUP, "few shot without trec", ("samsum",), 1),
                Column(SUBSET, "qasper", ("qasper",), 1),
                Column(SUBSET, "samsum", ("samsum",), 1),
            ],
        ),
        (
            columns(["trec", "qasper", "samsum"], 21, {"without_trec": ["qasper", "samsum", "lcc"]}),
            [
                Column(GROUP, "without trec", ("qasper", "samsum"), 3),
                Column(SUBSET, "qasper", ("qasper",), 1),
                Column(SUBSET, "samsum", ("samsum",), 1),
            ],
        ),
    ],
    ids=["made", "the benchmark's own"],
)
def test_leaving_out_trec_leaves_it_out_of_every_mean(wanted: list[Column], left: list[Column]) -> None:
    assert without_outlier(wanted) == left
