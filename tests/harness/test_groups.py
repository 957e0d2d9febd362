"""Means over named groups of subsets: in a summary, in the table, and as values of --subset."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

import benchmarks.registry
from harness.analysis.subset_groups import group_means, group_table
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.schema import Facts, Line
from tests.harness.driving import Runs
from tests.harness.toys import Toy

GROUPS = {"warm": ("red", "orange"), "cold": ("blue",), "green": ("green",)}
SCORES = {"red": [0.0, 100.0, 80.0], "orange": [10.0], "blue": [30.0, 50.0]}


class Grouped(Toy):
    name = "grouped"
    groups: ClassVar[dict[str, tuple[str, ...]]] = {"warm": ("red",), "coloured": ("red", "blue", "hidden")}


def test_subsets_weigh_alike_and_absent_ones_are_told() -> None:
    found = group_means(SCORES, {**GROUPS, "some": ("red", "green")})
    assert found["warm"] == {"score": pytest.approx(35.0), "n": 4, "n_subsets": 2, "of_subsets": 2}
    assert found["cold"]["score"] == 40
    assert found["some"] == {"score": pytest.approx(60.0), "n": 3, "n_subsets": 1, "of_subsets": 2}
    assert "green" not in found


def test_a_subset_without_scores_leaves_its_groups_without_a_mean() -> None:
    found = group_means({**SCORES, "orange": []}, GROUPS)
    assert found["warm"] == {"score": None, "n": 3, "n_subsets": 2, "of_subsets": 2}
    assert found["cold"]["score"] == 40


def line(score: float | None, subset: str, status: str = "ok") -> Line:
    return Line.model_validate(
        {
            "sample_id": f"{subset}{score}",
            "context_id": "c",
            "benchmark": "toy",
            "subset": subset,
            "length": None,
            "score": score,
            "status": status,
            "context_tokens": 9,
            "prompt_cut": subset == "red",
            **Variant("full").fields(),
        }
    )


def test_the_overall_cell_has_the_groups() -> None:
    lines = [line(score, subset) for subset, scores in SCORES.items() for score in scores]
    summary = summarise([*lines, line(None, "red", "oom")], {"toy": Facts(subsets=4, chance=0.0, groups=GROUPS)}, True)
    (overall,) = (cell for cell in summary["cells"] if cell["subset"] is None)
    assert overall["groups"] == group_means(SCORES, GROUPS)
    assert all("groups" not in cell for cell in summary["cells"] if cell["subset"] is not None)
    assert {cell["subset"]: cell["n_cut"] for cell in summary["cells"]} == {"red": 3, "orange": 0, "blue": 0, None: 3}


def test_no_groups_no_table() -> None:
    lines = [line(1.0, "red")]
    assert group_table("t", summarise(lines, {"toy": Facts(subsets=1, chance=0.0)}, True)["cells"]) is None


def test_a_run_prints_the_groups_and_takes_their_names(runs: Runs, toys: None) -> None:
    benchmarks.registry.register(Grouped)
    args = ("--benchmark", "grouped", "--method", "knorm", "--removed", "0.5", "--limit", "2")
    done = runs(*args, "--subset", "warm,blue")
    assert done.code == 0
    assert "coloured (2 of 3)" in done.out and "warm" in done.out
    assert {row["subset"] for row in runs.rows()} == {"red", "blue"}
    overall = [cell for cell in runs.json("summary.json")["cells"] if cell["subset"] is None]
    for cell in overall:
        assert cell["groups"]["coloured"]["score"] == pytest.approx(cell["score"])
    assert runs.json("run.json")["facts"]["grouped"]["groups"]["warm"] == ["red"]


def test_an_unknown_subset_is_told_the_groups_too(runs: Runs, toys: None, tmp_path: Path) -> None:
    benchmarks.registry.register(Grouped)
    done = runs("--benchmark", "grouped", "--method", "knorm", "--subset", "wram")
    assert done.code == 2 and "unknown subset 'wram'" in done.err and "warm" in done.err
