"""Differences by subset, likeness of scores and what some benchmarks alone have, against brute force."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from harness.analysis.paired_tests import scores_of
from harness.analysis.summary import BenchmarkFacts, summarise
from harness.results.run_folder import Line
from leaderboard.charts.heatmap import MOST_COLUMNS, cell_text, difference_charts, difference_table, level_name, levels
from leaderboard.charts.theme import DARK, LIGHT
from leaderboard.data import fidelity
from leaderboard.data import multi_question as questions
from leaderboard.data import pass_at_k as drawn
from leaderboard.data.differences import SUBSET, Column, Row, columns, differences, lines_of, siblings
from leaderboard.data.library import open_library
from leaderboard.data.score_agreement import CORRELATION, SAME, correlation, likeness, same
from tests.harness.made_runs import FACTS, FULL, KEYDIFF, KNORM, KVZAP, both, write_run
from tests.harness.made_runs import lines_of as made


def drawn_scores(seed: int, count: int = 12) -> dict[str, list[float]]:
    source = random.Random(seed)
    return {subset: [float(source.randrange(0, 101, 5)) for _ in range(count)] for subset in ("red", "blue")}


def test_each_cell_is_the_mean_of_the_samples_differences() -> None:
    full, pruned = drawn_scores(1), drawn_scores(2)
    lines = [*made(KNORM, pruned), *made(FULL, full)]
    wanted = columns(["red", "blue"], 3, {"colours": ["red", "blue", "green"], "none": ["green"]})
    assert [column.label for column in wanted] == ["mean of 2 of 3", "colours (2 of 3)", "red", "blue"]
    rows = {(row["variant"], row["column"]): row for row in differences(lines, wanted)}
    for name, subsets in {
        "all": ("red", "blue"),
        "colours": ("red", "blue"),
        "red": ("red",),
        "blue": ("blue",),
    }.items():
        expected = fmean(fmean(np.subtract(pruned[subset], full[subset])) for subset in subsets)
        row = rows["knorm head 0.5", name]
        assert row["difference"] == pytest.approx(expected)
        assert row["score"] - row["control"] == pytest.approx(expected)
        assert row["tie"] == (row["low"] <= 0 <= row["high"])
        assert rows["full", name]["score"] == pytest.approx(fmean(fmean(full[subset]) for subset in subsets))


def test_the_overall_column_is_the_summarys() -> None:
    lines = [*made(FULL, drawn_scores(1)), *made(KNORM, drawn_scores(2)), *made(KEYDIFF, drawn_scores(3))]
    pairs = summarise(lines, FACTS, True)["pairs"]
    wanted = columns(["red", "blue"], 2, {})[:1]
    given, own = differences(lines, wanted, pairs=pairs), differences(lines, wanted)
    assert [row["p_holm"] for row in given] == pytest.approx([row["p_holm"] for row in own])
    assert [row["difference"] for row in given] == pytest.approx([row["difference"] for row in own])


def of_subsets(lines: list[Line]) -> list[Row]:
    """What is drawn of pruned variants in columns of single subsets."""
    rows = differences(lines, columns(["red"], 1, {}))
    return [row for row in rows if row["kind"] == SUBSET and row["variant"] != "full"]


def test_ten_samples_tell_a_plain_loss_among_many_variants() -> None:
    names = [f"keydiff head 0.5 window={number}" for number in range(60)]
    full, none = {"red": [100.0] * 10}, {"red": [0.0] * 10}
    lines = [*made(FULL, full)]
    for number, name in enumerate(names):
        lines += [line.model_copy(update={"variant": name, "window": number}) for line in made(KEYDIFF, none)]
    rows = of_subsets(lines)
    assert len(rows) == 60
    assert {(row["difference"], row["tie"], row["p_holm"] > 0.1) for row in rows} == {(-100.0, False, True)}


def test_without_an_interval_the_cells_own_test_decides() -> None:
    few, many = {"red": [100.0] * 5}, {"red": [100.0] * 7}
    for scores, tie in ((few, True), (many, False)):  # 2 of 32 and 2 of 128 ways to throw the coins
        lines = [*made(FULL, scores), *made(KNORM, {"red": [0.0] * len(scores["red"])})]
        (row,) = of_subsets(lines)
        assert (row["low"], row["tie"]) == (None, tie)


def test_a_subset_that_one_lacks_is_not_compared_and_no_control_no_rows() -> None:
    lines = [*made(FULL, both(80.0)), *made(KNORM, {"red": [60.0] * 12})]
    rows = {
        row["column"]: row for row in differences(lines, columns(["red", "blue"], 2, {})) if row["variant"] != "full"
    }
    assert rows["all"]["difference"] is None and rows["all"]["score"] is None
    assert rows["blue"]["difference"] is None and rows["red"]["difference"] == -20.0
    assert differences(made(KNORM, both(60.0)), columns(["red", "blue"], 2, {})) == []


def test_floor_tie_and_difference_read_without_colour() -> None:
    full = {"red": [100.0] * 12, "blue": [0.0] * 11 + [100.0]}
    pruned = {"red": [0.0] * 12, "blue": [0.0] * 12}
    lines = [*made(FULL, full), *made(KNORM, pruned), *made(KEYDIFF, full)]
    cells = [cell for cell in summarise(lines, FACTS, True)["cells"] if cell["subset"] is None]
    wanted = columns(["red", "blue"], 2, {})
    rows = differences(lines, wanted)
    table = difference_table(rows, cells, [(c.kind, c.name, c.label) for c in wanted])
    text = {(row["variant"], row["title"]): row["text"] for row in table.to_dict("records")}
    assert text["full", "red"] == "100.0" and text["full", "blue"] == "8.3*"
    assert text["knorm head 0.5", "red"] == "−100.0" and text["knorm head 0.5", "blue"] == "−8.3*"
    assert text["keydiff head 0.5", "red"] == "+0.0≈"
    for look in (LIGHT, DARK):
        (chart,) = difference_charts(table, look)
        (data,) = chart.to_dict()["datasets"].values()
        fill = {(row["variant"], row["title"]): row["fill"] for row in data}
        assert fill["full", "red"] == "none" and fill["knorm head 0.5", "red"] == "colour"
        assert fill["keydiff head 0.5", "red"] == fill["knorm head 0.5", "blue"] == "grey"
    (chart,) = difference_charts(table, LIGHT, grey_ties=False)
    (data,) = chart.to_dict()["datasets"].values()
    assert {row["fill"] for row in data if row["variant"] == "keydiff head 0.5" and row["title"] == "red"} == {"colour"}
    assert cell_text({"level": "removed 0.5", "difference": None, "floor": False, "tie": None}) == "–"


def test_many_columns_stand_below_each_other() -> None:
    subsets = [f"subset {number}" for number in range(29)]
    lines = [*made(FULL, {name: [100.0] for name in subsets}), *made(KNORM, {name: [0.0] for name in subsets})]
    cells = [
        cell for cell in summarise(lines, {"toy": BenchmarkFacts(29, 0.0)}, True)["cells"] if cell["subset"] is None
    ]
    wanted = columns(subsets, 29, {"some": subsets[:3]})
    table = difference_table(differences(lines, wanted), cells, [(c.kind, c.name, c.label) for c in wanted])
    drawn = []
    for chart in difference_charts(table, LIGHT):
        (data,) = chart.to_dict()["datasets"].values()
        drawn.append(list(dict.fromkeys(row["title"] for row in data)))
    assert drawn[0] == ["all", "some"] and [len(titles) for titles in drawn[1:]] == [10, 10, 9]
    assert [title for titles in drawn[1:] for title in titles] == subsets
    assert max(map(len, drawn)) <= MOST_COLUMNS


def test_levels_are_in_order_and_named() -> None:
    asked = [
        line.model_copy(update={"variant": "kvzap_mlp threshold tau=-5"})
        for line in made(KVZAP, both(1.0), requested=0.25, level=-5.0)
    ]
    lines = [*made(FULL, both(1.0)), *made(KVZAP, both(1.0)), *made(KNORM, both(1.0)), *asked]
    found = levels(summarise(lines, FACTS, True)["cells"])
    assert [level_name(level) for level in found] == ["removed 0.25", "removed 0.5", "tau -4"]


def test_two_thresholds_of_one_level_have_names_of_their_own() -> None:
    taus = [replace(KVZAP, level=tau) for tau in (-4.0, -4.1)]
    parts = [made(FULL, both(90.0)), made(KNORM, both(80.0))]
    parts += [made(one, both(70.0), removed=0.5, requested=0.5) for one in taus]
    lines = [line.model_copy(update={"question_index": 0, "prefills_paid": 1}) for part in parts for line in part]
    names = ["full cache", "knorm head", *(one.label for one in taus)]
    wanted = columns(["red", "blue"], 2, {})
    cells = [cell for cell in summarise(lines, FACTS, True)["cells"] if cell["subset"] is None]
    table = difference_table(differences(lines, wanted), cells, [(c.kind, c.name, c.label) for c in wanted])
    assert list(dict.fromkeys(table["name"])) == names
    assert list(questions.by_question(lines)["name"]) == names
    assert list(questions.prefills(lines, {})["name"]) == names


def test_tables_without_a_row_have_their_columns() -> None:
    """The variants of a summary may be others than those of the lines, and lines may lack what they need not have."""
    cells = [cell for cell in summarise(made(FULL, both(90.0)), FACTS, True)["cells"] if cell["subset"] is None]
    table = difference_table([], cells, [("overall", "all", "all")])
    assert table.empty and {"level", "variant", "title", "difference", "floor"} <= set(table.columns)
    assert difference_charts(table, LIGHT) == []
    paid = questions.prefills(made(FULL, both(90.0)), {})
    assert paid.empty and "level" in paid.columns
    assert questions.by_question([]).empty and {"variant", "pass@1", "se"} <= set(drawn.passes([], {}).columns)


def test_lengths_of_a_model_are_siblings(tmp_path: Path) -> None:
    for length in (64, 128):
        lines = [*made(FULL, both(90.0), length=length), *made(KNORM, both(50.0), length=length)]
        write_run(tmp_path / str(length), lines)
    write_run(tmp_path / "other", [*made(FULL, both(90.0)), *made(KEYDIFF, both(50.0))], dtype="bfloat16")
    groups = open_library([tmp_path]).groups
    small = next(group for group in groups if group.part.length == 64 and group.part.dtype == "float32")
    assert [group.part.length for group in siblings(groups, small)] == [64, 128]
    assert all(group.part.dtype == "float32" for group in siblings(groups, small))


def test_a_variant_in_two_runs_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [*made(FULL, both(90.0)), *made(KNORM, both(50.0))])
    write_run(tmp_path / "b", [*made(FULL, both(90.0)), *made(KNORM, both(40.0)), *made(KEYDIFF, both(30.0))])
    (group,) = open_library([tmp_path]).groups
    found = lines_of(group)
    assert len(found) == 3 * 24 and {line.score for line in found if line.method == "knorm"} == {50.0}


def test_likeness_against_numpy() -> None:
    a, b = drawn_scores(4)["red"], drawn_scores(5)["red"]
    assert same(a, b) == sum(x == y for x, y in zip(a, b, strict=True)) / len(a)
    assert correlation(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert correlation(a, [5.0] * len(a)) is None and same([], []) is None and correlation([1.0], [1.0]) is None
    scores = {
        name: scores_of(made(variant, {"red": values}))
        for name, variant, values in (("x", KNORM, a), ("y", KEYDIFF, b), ("z", KVZAP, a[:5]))
    }
    rows = likeness(scores, SAME)
    assert [(row["a"], row["b"], row["n"]) for row in rows] == [("y", "x", 12), ("z", "x", 5), ("z", "y", 5)]
    assert rows[1]["value"] == 1.0
    assert likeness(scores, CORRELATION)[1]["value"] == pytest.approx(1.0)


def test_pass_figures_are_the_cells() -> None:
    facts = {"toy": FACTS["toy"]._replace(pass_at=(1, 4))}
    lines: list[Line] = []
    for rollout, scores in enumerate(([100.0, 0.0], [100.0, 0.0], [0.0, 0.0], [0.0, 100.0])):
        lines += made(FULL, {"red": scores}, rollout=rollout, metrics={"answered": 1.0}, finish_reason="length")
        lines += made(KNORM, {"red": scores}, rollout=rollout, status="truncated")
    cells = summarise(lines, facts, True)["cells"]
    table = drawn.passes(cells, drawn.truncated_shares(lines)).set_index("variant")
    row = table.loc["full"]
    assert row["pass@1"] == pytest.approx(37.5) and row["pass@4"] == pytest.approx(100.0)
    assert row["se"] == pytest.approx(100 * np.std([0.5, 0.25], ddof=1) / 2**0.5)
    assert [row[f"right, rollout {place}"] for place in (1, 2, 3, 4)] == [1, 1, 0, 1]
    assert row["answered"] == row["at limit"] == 1.0 and row["truncated"] == 0.0
    assert table.loc["knorm head 0.5", "truncated"] == 1.0
    assert drawn.pass_chart(table.reset_index(), LIGHT).to_dict()


def test_closeness_is_the_cells_with_the_bootstraps_interval() -> None:
    kl = np.linspace(0.01, 0.2, 24)
    lines = made(FULL, both(100.0), metrics={"kl_mean": 0.0, "kl_p95": 0.0, "ppl_ratio": 1.0})
    pruned = made(KNORM, both(90.0))
    lines += [ln.model_copy(update={"metrics": {"kl_mean": value}}) for ln, value in zip(pruned, kl, strict=True)]
    table = fidelity.closeness(summarise(lines, FACTS, True)["cells"], lines)
    rows = table.set_index("metric")
    assert rows.loc["kl_mean", "value"] == pytest.approx(kl.mean()) and rows.loc["top1", "value"] == 90.0
    low, high = rows.loc["kl_mean", ["low", "high"]]
    assert kl.min() < low < kl.mean() < high < kl.max()
    assert all(fidelity.closeness_chart(table, figure).to_dict() for figure in fidelity.FIGURES)


def test_questions_and_prefills_by_brute_force() -> None:
    lines: list[Line] = []
    for context in range(3):
        for question in range(2):
            place = {"question_index": question, "context_id": f"c{context}", "sample_id": f"s{context}/{question}"}
            for mode, pays in (("agnostic", question == 0), ("aware", True)):
                score = 10.0 * context + 50 * question
                name = "knorm head 0.5" + (" aware" if mode == "aware" else "")
                own = made(KNORM, {"red": [score]}, **place, prefills_paid=int(pays), query_mode=mode)
                lines += [line.model_copy(update={"variant": name}) for line in own]
    table = questions.by_question(lines)
    assert list(zip(table["mode"], table["question"], table["score"], strict=True)) == [
        ("agnostic", 1, 10.0),
        ("aware", 1, 10.0),
        ("agnostic", 2, 60.0),
        ("aware", 2, 60.0),
    ]
    assert set(table["name"]) == {"knorm head"}
    paid = questions.prefills(lines, {"knorm head 0.5": 35.0}).set_index("mode")
    assert paid.loc["agnostic", "prefills"] == 3 and paid.loc["aware", "prefills"] == 6
    assert paid.loc["aware", "a context"] == 2.0 and paid.loc["agnostic", "score"] == 35.0
    assert questions.question_chart(table).to_dict() and questions.prefill_chart(paid.reset_index(), LIGHT).to_dict()


def test_a_column_of_one_subset_has_its_own_name() -> None:
    assert Column(SUBSET, "red", ("red",), 1).label == "red"


def shared(lines: list[Line], questions: int) -> list[Line]:
    """The same lines, each ``questions`` neighbours of a subset on one context."""
    return [
        line.model_copy(update={"context_id": f"{line.subset} {int(line.sample_id.rpartition('/')[2]) // questions}"})
        for line in lines
    ]


def test_cells_draw_whole_contexts() -> None:
    random_ = np.random.default_rng(0)
    of_context = np.repeat(random_.choice([0.0, 100.0], 12), 10)
    full, pruned = {"red": [50.0] * 120}, {"red": of_context.tolist()}
    lines = shared([*made(FULL, full), *made(KNORM, pruned)], 10)
    (row,) = of_subsets(lines)
    overall = summarise(lines, FACTS, True)["pairs"][0]
    assert (row["low"], row["high"]) == pytest.approx((overall["low"], overall["high"]))
    by_question = of_subsets([*made(FULL, full), *made(KNORM, pruned)])[0]
    assert row["high"] - row["low"] > 2.5 * (by_question["high"] - by_question["low"])


def test_what_coins_do_often_is_a_tie_though_its_interval_leaves_out_0() -> None:
    lines = [*made(FULL, {"red": [100.0] * 10}), *made(KNORM, {"red": [0.0] * 4 + [100.0] * 6})]
    (row,) = of_subsets(lines)
    assert row["high"] < 0 and row["tie"]  # 4 of 4 in one direction: p is 1/8
    lines = [*made(FULL, {"red": [100.0] * 10}), *made(KNORM, {"red": [0.0] * 6 + [100.0] * 4})]
    assert of_subsets(lines)[0]["tie"] is False


def test_a_tie_over_all_samples_is_that_of_the_ranks() -> None:
    """Of 40 variants one that loses 6 of 24 is a tie after Holm's correction, though not by its own interval."""
    lines = [*made(FULL, both(100.0))]
    for number in range(40):
        variant = replace(KEYDIFF, window=number)
        lines += made(variant, {"red": [0.0] * 3 + [100.0] * 9, "blue": [0.0] * 3 + [100.0] * 9})
    pairs = summarise(lines, FACTS, True)["pairs"]
    told = {pair["a"]: pair["tie"] for pair in pairs if pair["against"] == "control"}
    rows = [
        row for row in differences(lines, columns(["red", "blue"], 2, {})[:1], pairs=pairs) if row["tie"] is not None
    ]
    assert {row["variant"]: row["tie"] for row in rows} == told and set(told.values()) == {True}
    assert all(row["high"] < 0 for row in rows)


def test_closeness_draws_whole_contexts() -> None:
    kl = np.repeat(np.linspace(0.01, 0.2, 12), 10)
    pruned = made(KNORM, {"red": [90.0] * 120})
    lines = made(FULL, {"red": [100.0] * 120}, metrics={"kl_mean": 0.0})
    lines += [ln.model_copy(update={"metrics": {"kl_mean": value}}) for ln, value in zip(pruned, kl, strict=True)]
    widths = []
    for some in (lines, shared(lines, 10)):
        cells = summarise(some, {"toy": BenchmarkFacts(1, 0.0)}, True)["cells"]
        row = fidelity.closeness(cells, some).set_index("metric").loc["kl_mean"]
        widths.append(row["high"] - row["low"])
        cell = next(cell for cell in cells if cell["subset"] is None and cell["method"] == "knorm")
        assert (row["low"], row["high"]) == pytest.approx(cell["metric_intervals"]["kl_mean"], rel=0.05)
    assert widths[1] > 2.5 * widths[0]
