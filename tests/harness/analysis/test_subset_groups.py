"""Means over named groups of subsets: in a summary, in the table of a run, and as values of --subset."""

from __future__ import annotations

from typing import ClassVar

import pytest

import benchmarks.registry
from benchmarks.longbench.benchmark import CATEGORIES, LongBench
from benchmarks.ruler.benchmark import Ruler
from harness.analysis.subset_groups import group_means
from harness.results.schema import Facts, Group
from tests.harness.driving import Runs
from tests.harness.made_runs import FULL, lines_of, summary_of
from tests.harness.toys import Toy

GROUPS = {"warm": ["red", "orange"], "cold": ["blue"], "green": ["green"], "some": ["red", "green"]}
SCORES = {"red": [0.0, 100.0, 80.0], "orange": [10.0], "blue": [30.0, 50.0]}


class Grouped(Toy):
    name = "grouped"
    groups: ClassVar[dict[str, tuple[str, ...]]] = {"warm": ("red",), "coloured": ("red", "blue", "hidden")}


def test_subsets_weigh_alike_and_those_that_were_not_run_are_counted() -> None:
    assert group_means(SCORES, GROUPS) == {
        "warm": Group(score=35.0, n=4, n_subsets=2, of_subsets=2),  # (60 + 10) / 2
        "cold": Group(score=40.0, n=2, n_subsets=1, of_subsets=1),
        "some": Group(score=60.0, n=3, n_subsets=1, of_subsets=2),
    }
    without = group_means({**SCORES, "orange": []}, GROUPS)
    assert without["warm"] == Group(score=None, n=3, n_subsets=2, of_subsets=2)


def test_overall_cells_have_the_groups() -> None:
    facts = {"toy": Facts(subsets=4, chance=0.0, groups=GROUPS)}
    summary = summary_of(lines_of(FULL, {**SCORES, "red": [*SCORES["red"], None]}), facts=facts)
    cells = {cell.subset: cell for cell in summary.cells}
    assert cells[None].groups == group_means(SCORES, GROUPS)
    assert all(cell.groups == {} and "groups" not in cell.to_json() for subset, cell in cells.items() if subset)


def test_a_run_prints_the_groups_and_takes_their_names(runs: Runs, toys: None) -> None:
    benchmarks.registry.register(Grouped)
    args = ("--benchmark", "grouped", "--method", "knorm", "--removed", "0.5", "--limit", "2")
    done = runs(*args, "--subset", "warm,blue")
    assert done.code == 0
    assert "coloured (2 of 3)" in done.out and "warm" in done.out
    assert {row["subset"] for row in runs.rows()} == {"red", "blue"}
    for cell in runs.json("summary.json")["cells"]:
        if cell["subset"] is None:
            assert cell["groups"]["coloured"]["score"] == pytest.approx(cell["score"])
    assert runs.json("run.json")["facts"]["grouped"]["groups"]["warm"] == ["red"]
    wrong = runs(*args, "--subset", "wram")
    assert wrong.code == 2 and "unknown subset 'wram'" in wrong.err and "warm" in wrong.err


def test_the_papers_categories_are_groups() -> None:
    sizes = {name: len(own) for name, own in Ruler.groups.items()}
    assert sizes == {"retrieval": 8, "tracing": 1, "aggregation": 2, "qa": 2}
    assert sorted(name for own in Ruler.groups.values() for name in own) == sorted(Ruler.subsets)
    assert len(CATEGORIES) == 6 and LongBench.groups.keys() == {*CATEGORIES, "without_trec"}
