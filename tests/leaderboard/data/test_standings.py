"""The rows under a chart: what is read off curves, ranks, and what is said in their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.analysis.boards import Board, board_of
from harness.analysis.run_reader import read
from harness.config.variants import Variant
from leaderboard.data import method_code
from leaderboard.data.levels import exact
from leaderboard.data.standings import ReadOff, read_off, standings
from tests.harness.made_runs import FULL, KVZAP, both, lines_of, write_run

HALF = ("removed", 0.5)


def curve(method: str, scores: dict[float, float], count: int = 12, **more: object) -> list[object]:
    return [
        line
        for level, score in scores.items()
        for line in lines_of(Variant(method, "head", "removed", level), both(score, count), **more)
    ]


def board(path: Path, *parts: list[object], control: float = 100, count: int = 12) -> Board:
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
            assert found is not None and found.measured and found.score == ys[np.abs(xs - wanted).argmin()]
        elif xs[0] < wanted < xs[-1]:
            assert found is not None and not found.measured
            assert found.score == pytest.approx(float(np.interp(wanted, xs, ys)))
        else:
            assert found is None


def test_interpolated_figures_are_marked() -> None:
    assert str(read_off([(0.4, 80.0), (0.6, 60.0)], 0.5)) == "≈ 70.0"
    assert str(read_off([(0.4, 80.0), (0.5003, 71.2)], 0.5)) == "71.2"
    assert read_off([], 0.5) is None
    assert read_off([(0.4, 80.0), (0.4, 60.0), (0.6, 30.0)], 0.5) == ReadOff(pytest.approx(50.0), False)


def test_the_control_is_no_point_to_read_off(tmp_path: Path) -> None:
    """Between the full cache and the first level nothing was measured of the method."""
    rows = standings(board(tmp_path, curve("knorm", {0.75: 40, 0.875: 20})), HALF)
    assert rows[0].read_off == {0.5: None, 0.75: ReadOff(40.0, True)}


def test_ranks_ties_and_order(tmp_path: Path) -> None:
    rows = standings(
        board(
            tmp_path,
            curve("random", {0.25: 50, 0.5: 10, 0.75: 0, 0.875: 0}),
            curve("knorm", {0.25: 100, 0.5: 90, 0.75: 60, 0.875: 50}),
            curve("keydiff", {0.25: 100, 0.5: 90, 0.75: 70, 0.875: 50}),
        ),
        HALF,
    )
    assert [(row.method, row.rank, row.tie) for row in rows] == [
        ("keydiff", 1, True),
        ("knorm", 1, True),
        ("random", 3, False),
    ]
    assert rows[0].area == pytest.approx((100 * 0.25 + 95 * 0.25 + 80 * 0.25 + 60 * 0.125) / 0.875)


def test_ranks_do_not_depend_on_what_is_shown(tmp_path: Path) -> None:
    made = board(tmp_path, curve("knorm", {0.5: 90}), curve("random", {0.5: 10}))
    (row,) = standings(made, HALF, lambda cell: cell["method"] == "random")
    assert (row.method, row.rank) == ("random", 2)


def test_pruned_with_the_question_in_view_is_ranked_apart(tmp_path: Path) -> None:
    aware = [Variant(name, "head", "removed", 0.5, query_mode="aware") for name in ("knorm", "random")]
    parts = [
        curve("knorm", {0.5: 60}),
        curve("keydiff", {0.5: 40}),
        lines_of(aware[0], both(100)),
        lines_of(aware[1], both(80)),
    ]
    rows = standings(board(tmp_path, *parts), HALF)
    assert [(row.curve, row.rank) for row in rows] == [
        ("knorm head", 1),
        ("keydiff head", 2),
        ("knorm head aware", 1),
        ("random head aware", 2),
    ]


def test_each_threshold_chosen_for_a_level_has_a_row(tmp_path: Path) -> None:
    """Two calibrations on one board: two points of one curve at one level, each with a score and a rank."""
    taus = {tau: replace(KVZAP, level=tau) for tau in (-4.0, -4.1)}
    parts = [
        lines_of(taus[-4.0], both(40), removed=0.5, requested=0.5),
        lines_of(taus[-4.1], both(80), removed=0.48, requested=0.5),
        curve("knorm", {0.5: 60}),
    ]
    made = board(tmp_path, *parts)
    rows = standings(made, HALF)
    assert [(row.name, row.curve, row.rank, row.cell and row.cell["score"]) for row in rows] == [
        (taus[-4.1].label, "kvzap_mlp threshold", 1, 80),
        ("knorm head", "knorm head", 2, 60),
        (taus[-4.0].label, "kvzap_mlp threshold", 3, 40),
    ]
    assert sorted(row["variant"] for row in made.ranks) == sorted(row.cell["variant"] for row in rows if row.cell)
    for level in (None, ("removed", 0.75)):  # where the curve has no cell it has one row, with its own name
        names = sorted(row.name for row in standings(made, level))
        assert names == ["knorm head", "kvzap_mlp threshold"]


def test_levels_that_few_digits_merge_have_names_of_their_own() -> None:
    levels = [("threshold", -4.366201), ("threshold", -4.366202), ("removed", 0.5), ("keep_tokens", 1234567)]
    assert [exact(level) for level in levels] == ["tau -4.366201", "tau -4.366202", "0.5", "keep 1234567"]
    assert exact(("threshold", "-inf")) == "tau -inf" and exact(None) == ""


def test_nothing_is_claimed_at_the_floor(tmp_path: Path) -> None:
    (row,) = standings(board(tmp_path, curve("knorm", {0.25: 9, 0.5: 8, 0.75: 5, 0.875: 5}), control=10), HALF)
    assert row.floor and "floor" in row.remarks
    assert (row.rank, row.area, set(row.read_off.values())) == (None, None, {None})


def test_few_samples_have_no_rank_and_say_so(tmp_path: Path) -> None:
    made = board(tmp_path, curve("knorm", {0.5: 60}, 5), curve("random", {0.5: 0}, 5), count=5)
    rows = standings(made, HALF)
    assert [(row.rank, row.why) for row in rows] == [(None, "under 10 samples a subset")] * 2


def test_remarks_name_protection_alarms_and_changed_code(tmp_path: Path) -> None:
    bound = lines_of(Variant("knorm", "head", "removed", 0.5), both(60), bound_by="protection", removed=0.3)
    made = board(tmp_path, bound, curve("random", {0.5: 0}))
    rows = {row.method: row for row in standings(made, HALF, stale={"random": method_code.STALE})}
    assert "bound by protection" in rows["knorm"].remarks
    assert "removed over 0.05 off" in rows["knorm"].remarks
    assert method_code.STALE in rows["random"].remarks and method_code.STALE not in rows["knorm"].remarks


def test_an_alarm_on_another_level_is_told_as_one(tmp_path: Path) -> None:
    off = lines_of(Variant("knorm", "head", "removed", 0.75), both(60), removed=0.6)
    made = board(tmp_path, curve("knorm", {0.5: 60}), off)
    (at_half,), (at_most,) = (standings(made, ("removed", level)) for level in (0.5, 0.75))
    assert at_half.remarks == ["removed over 0.05 off at some levels"]
    assert at_most.remarks == ["removed over 0.05 off"]


def test_a_method_that_cannot_prune_here_has_a_row_with_its_note(tmp_path: Path) -> None:
    made = board(tmp_path, curve("knorm", {0.5: 60}))
    note = {**made.cells[-1], "variant": "snapkv head 0.5", "method": "snapkv", "status": "unsupported"}
    made.cells.append({**note, "note": "prefill only", "score": None, "removed_mean": None, "n_failed": 0})
    row = standings(made, HALF)[-1]
    assert (row.method, row.rank, row.remarks) == ("snapkv", None, ["prefill only"])


def test_costs_come_from_the_run_then_from_the_package(tmp_path: Path) -> None:
    lines = [*lines_of(FULL, both(100)), *curve("knorm", {0.5: 60}), *curve("kvzip", {0.5: 60})]
    lines += [
        line.model_copy(update={"method": "mine", "variant": "mine head 0.5"}) for line in curve("tova", {0.5: 1})
    ]
    folder = write_run(tmp_path / "run", lines)
    run = read(folder)
    run.run["method_costs"] = {"knorm": "a norm"}
    assert method_code.costs(board_of([run], "toy", 64)) == {
        "knorm": "a norm",
        "kvzip": "one more prefill",
        "mine": "not stated",
    }


def test_changed_code_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = board(tmp_path, curve("knorm", {0.5: 60}), curve("random", {0.5: 0}), curve("keydiff", {0.5: 0}))
    made.runs[0].run["method_hashes"] = {"knorm": "then", "random": "now"}
    monkeypatch.setattr(method_code, "_hash_now", lambda method, model, options: "now")
    assert method_code.stale(made) == {"knorm": method_code.STALE}
    monkeypatch.setattr(method_code, "_hash_now", lambda method, model, options: None)
    assert method_code.stale(made) == {}


def test_between_figures_of_other_decades_the_line_is_one_of_logarithms() -> None:
    found = read_off([(0.4, 0.001), (0.6, 0.1)], 0.5, log=True)
    assert found is not None and found.score == pytest.approx(0.01) and not found.measured
    assert read_off([(0.4, 0.0), (0.6, 0.1)], 0.5, log=True) == ReadOff(pytest.approx(0.05), False)
