"""The rows under a chart: what is read off curves, ranks, and what is said in their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.analysis.boards import Board, board_of
from harness.analysis.run_reader import read
from harness.config.variants import Variant
from harness.results.schema import Line
from leaderboard.data import method_code
from leaderboard.data.levels import exact
from leaderboard.data.standings import ReadOff, read_off, standings
from tests.harness.made_runs import FULL, KVZAP, both, changed, lines_of, write_run

HALF = ("removed", 0.5)


def curve(method: str, scores: dict[float, float], count: int = 12, **more: object) -> list[Line]:
    levels = {Variant(method, "head", "removed", level): both(score, count) for level, score in scores.items()}
    return [line for variant, scores in levels.items() for line in lines_of(variant, scores, **more)]


def board(path: Path, *parts: list[Line], control: float = 100, count: int = 12) -> Board:
    lines = [*lines_of(FULL, both(control, count)), *(line for part in parts for line in part)]
    return board_of([read(write_run(path / "run", lines))], "toy", 64)


@pytest.mark.parametrize("seed", range(20))
def test_reading_off_is_linear_between_neighbours_and_nothing_beyond(seed: int) -> None:
    random = np.random.default_rng(seed)
    xs = np.sort(random.choice(np.arange(5, 95, 3), size=5, replace=False)) / 100.0
    ys = random.uniform(0, 100, size=5)
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    for wanted in np.linspace(0, 1, 101):
        found = read_off(points, float(wanted))
        near = float(np.abs(xs - wanted).min())
        if near <= 0.005:
            assert found == ReadOff(ys[np.abs(xs - wanted).argmin()], True)
        elif xs[0] < wanted < xs[-1]:
            assert found == ReadOff(pytest.approx(float(np.interp(wanted, xs, ys))), False)
        else:
            assert found is None


@pytest.mark.parametrize(
    ("points", "log", "shown"),
    [
        ([(0.4, 80.0), (0.6, 60.0)], False, "≈ 70.0"),
        ([(0.4, 80.0), (0.5003, 71.2)], False, "71.2"),
        ([(0.4, 80.0), (0.4, 60.0), (0.6, 30.0)], False, "≈ 50.0"),
        ([(0.4, 1.0), (0.6, 100.0)], True, "≈ 10.0"),  # of other decades, between the logarithms
        ([(0.4, 0.0), (0.6, 100.0)], True, "≈ 50.0"),
        ([], False, "None"),
    ],
)
def test_interpolated_figures_are_marked(points: list[tuple[float, float]], log: bool, shown: str) -> None:
    assert str(read_off(points, 0.5, log)) == shown


def test_the_control_is_no_point_to_read_off(tmp_path: Path) -> None:
    """Between the full cache and the first level nothing was measured of the method."""
    rows = standings(board(tmp_path, curve("knorm", {0.75: 40, 0.875: 20})), HALF)
    assert rows[0].read_off == {0.5: None, 0.75: ReadOff(40.0, True)}


def test_ranks_ties_and_order(tmp_path: Path) -> None:
    parts = [
        curve("random", {0.25: 50, 0.5: 10, 0.75: 0, 0.875: 0}),
        curve("knorm", {0.25: 100, 0.5: 90, 0.75: 60, 0.875: 50}),
        curve("keydiff", {0.25: 100, 0.5: 90, 0.75: 70, 0.875: 50}),
    ]
    made = board(tmp_path, *parts)
    rows = standings(made, HALF)
    assert [(row.method, row.rank, row.tie) for row in rows] == [
        ("keydiff", 1, True),
        ("knorm", 1, True),
        ("random", 3, False),
    ]
    assert rows[0].area == pytest.approx((100 * 0.25 + 95 * 0.25 + 80 * 0.25 + 60 * 0.125) / 0.875)
    (row,) = standings(made, HALF, lambda cell: cell.method == "random")
    assert (row.method, row.rank) == ("random", 3)  # whatever is shown


def test_pruned_with_the_question_in_view_is_ranked_apart(tmp_path: Path) -> None:
    aware = {
        Variant(name, "head", "removed", 0.5, query_mode="aware"): n for name, n in (("knorm", 100), ("random", 80))
    }
    parts = [curve("knorm", {0.5: 60}), curve("keydiff", {0.5: 40})]
    rows = standings(board(tmp_path, *parts, *(lines_of(one, both(score)) for one, score in aware.items())), HALF)
    assert [(row.curve, row.rank) for row in rows] == [
        ("knorm head", 1),
        ("keydiff head", 2),
        ("knorm head aware", 1),
        ("random head aware", 2),
    ]


def test_each_threshold_chosen_for_a_level_has_a_row(tmp_path: Path) -> None:
    """Two calibrations on one board: two points of one curve at one level, each with a score and a rank."""
    taus = {tau: changed(KVZAP, level=tau) for tau in (-4.0, -4.1)}
    parts = [
        lines_of(taus[-4.0], both(40), removed=0.5, requested=0.5),
        lines_of(taus[-4.1], both(80), removed=0.48, requested=0.5),
        curve("knorm", {0.5: 60}),
    ]
    made = board(tmp_path, *parts)
    rows = standings(made, HALF)
    assert [(row.name, row.curve, row.rank, row.cell and row.cell.score) for row in rows] == [
        (taus[-4.1].label, "kvzap_mlp threshold", 1, 80),
        ("knorm head", "knorm head", 2, 60),
        (taus[-4.0].label, "kvzap_mlp threshold", 3, 40),
    ]
    assert sorted(row.variant for row in made.ranks) == sorted(row.cell.variant for row in rows if row.cell)
    for level in (None, ("removed", 0.75)):  # where the curve has no cell it has one row, with its own name
        assert sorted(row.name for row in standings(made, level)) == ["knorm head", "kvzap_mlp threshold"]


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (("threshold", -4.366201), "tau -4.366201"),
        (("threshold", -4.366202), "tau -4.366202"),
        (("removed", 0.5), "0.5"),
        (("keep_tokens", 1234567), "keep 1234567"),
        (("threshold", float("-inf")), "tau -inf"),
        (None, ""),
    ],
)
def test_levels_that_few_digits_merge_have_names_of_their_own(level: tuple[str, float] | None, text: str) -> None:
    assert exact(level) == text


def test_nothing_is_claimed_at_the_floor_or_of_few_samples(tmp_path: Path) -> None:
    (row,) = standings(board(tmp_path, curve("knorm", {0.25: 9, 0.5: 8, 0.75: 5, 0.875: 5}), control=10), HALF)
    assert row.floor and "floor" in row.remarks
    assert (row.rank, row.area, set(row.read_off.values())) == (None, None, {None})
    few = board(tmp_path / "few", curve("knorm", {0.5: 60}, 5), curve("random", {0.5: 0}, 5), count=5)
    assert [(row.rank, row.why) for row in standings(few, HALF)] == [(None, "under 10 samples a subset")] * 2


def test_remarks_name_protection_alarms_and_changed_code(tmp_path: Path) -> None:
    bound = lines_of(Variant("knorm", "head", "removed", 0.5), both(60), bound_by="protection", removed=0.3)
    off = lines_of(Variant("tova", "head", "removed", 0.75), both(60), removed=0.6)
    made = board(tmp_path, bound, curve("random", {0.5: 0}), curve("tova", {0.5: 60}), off)
    at_half, at_most = (
        {row.method: row.remarks for row in standings(made, ("removed", level), stale={"random": method_code.STALE})}
        for level in (0.5, 0.75)
    )
    assert (
        at_half["knorm"] == ["bound by protection", "removed over 0.05 off"] and method_code.STALE in at_half["random"]
    )
    assert at_half["tova"] == ["removed over 0.05 off at some levels"]
    assert at_most["tova"] == ["removed over 0.05 off"]


def test_a_method_that_cannot_prune_here_has_a_row_with_its_note(tmp_path: Path) -> None:
    made = board(tmp_path, curve("knorm", {0.5: 60}))
    absent = {"variant": "snapkv head 0.5", "method": "snapkv", "status": "unsupported", "note": "prefill only"}
    made.cells.append(made.cells[-1].model_copy(update={**absent, "score": None, "removed_mean": None, "n_failed": 0}))
    row = standings(made, HALF)[-1]
    assert (row.method, row.rank, row.remarks) == ("snapkv", None, ["prefill only"])


def test_costs_come_from_the_run_then_from_the_package(tmp_path: Path) -> None:
    lines = [*lines_of(FULL, both(100)), *curve("knorm", {0.5: 60}), *curve("kvzip", {0.5: 60})]
    mine = {"method": "mine", "variant": "mine head 0.5"}
    lines += [line.model_copy(update=mine) for line in curve("tova", {0.5: 1})]
    run = read(write_run(tmp_path / "run", lines))
    run.run.method_costs = {"knorm": "a norm"}
    costs = {"knorm": "a norm", "kvzip": "one more prefill", "mine": "not stated"}
    assert method_code.costs(board_of([run], "toy", 64)) == costs


def test_changed_code_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = board(tmp_path, curve("knorm", {0.5: 60}), curve("random", {0.5: 0}), curve("keydiff", {0.5: 0}))
    made.runs[0].run.method_hashes = {"knorm": "then", "random": "now"}
    for now, stale in (("now", {"knorm": method_code.STALE}), (None, {})):
        monkeypatch.setattr(method_code, "_hash_now", lambda method, model, options, now=now: now)
        assert method_code.stale(made) == stale
