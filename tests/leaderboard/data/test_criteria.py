"""The four criteria are read off measured cells alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config.variants import Variant
from harness.results.method_cards import cards
from harness.results.schema import Cell
from leaderboard.data.criteria import NOT_MEASURED, curves, fidelity_group, kl, rows, score
from leaderboard.data.library import open_library
from tests.harness.made_runs import FULL, KNORM, both, lines_of, write_run


def cell(variant: str, removed: float, value: float | None, **more: Any) -> Cell:
    method, budget = (*variant.split(" "), "none")[:2]
    fields = Variant(method, budget, "removed" if removed else "none", removed or None).fields()
    figures = {"score": value, "removed_mean": removed, "removed_min": removed, "removed_max": removed}
    return Cell(
        **{
            **fields,
            "variant": variant,
            "benchmark": "toy",
            "subset": None,
            "length": None,
            "n_subsets": 1,
            **figures,
            **more,
        }
    )


@pytest.mark.parametrize(
    "wrong",
    [
        *({"n_failed": 1}, {"floor": True}, {"of_subsets": 13}, {"subset": "red"}),
        {"status": "unsupported", "note": "prefill only"},
    ],
)
def test_a_cell_that_carries_no_claim_is_not_read(wrong: dict[str, Any]) -> None:
    assert curves([cell("knorm head 0.5", 0.5, 40.0)], score) == {"knorm head": [(0.5, 40.0)]}
    assert curves([cell("knorm head 0.5", 0.5, 40.0, **wrong)], score) == {}


def test_rows_have_declared_facts_and_measured_figures() -> None:
    cells = [
        cell("full", 0.0, 100.0, metrics={"ttft_seconds": 2.0, "tokens_per_second": 50.0}),
        cell("kvzip global 0.5", 0.5, 90.0, metrics={"ttft_seconds": 4.4}),
        cell("h2o head 0.25", 0.25, 80.0),
        cell("h2o head 0.75", 0.75, 40.0),
        cell("knorm head 0.75", 0.75, 20.0),
    ]
    kl_cells = [cell("h2o head 0.5", 0.5, 90.0, metrics={"kl_mean": 0.25})]
    found = {row["method"]: row for row in rows(cards(), cells, kl_cells)}
    kvzip, h2o, kvzap = found["kvzip global"], found["h2o head"], found["kvzap_mlp"]
    assert kvzip["cost in prefill"] == "time to first token x 2.20"
    assert kvzip["cost in decode"] == "prunes the prefill only"
    assert kvzip["attention weights"] == "in an extra pass" and kvzip["caches of heads"] == "different by head"
    assert (h2o["prunes in"], h2o["attention weights"]) == ("prefill and decode", "prefill and decode")
    assert (h2o["score at 50% removed"], h2o["KL at 50% removed"]) == ("≈ 60.0", "0.2500")
    assert h2o["KL at 75% removed"] == NOT_MEASURED
    assert kvzap["attention weights"] == "no" and kvzap["score at 50% removed"] == NOT_MEASURED
    # the control is no level to interpolate from
    knorm = found["knorm head"]
    assert (knorm["score at 50% removed"], knorm["score at 75% removed"]) == (NOT_MEASURED, "20.0")
    assert "full" not in found


def test_kl_is_taken_from_the_same_models_fidelity_run(results: Path) -> None:
    for name, benchmark, model in (("a", "toy", "tiny"), ("b", "fidelity:toy", "tiny"), ("c", "fidelity:toy", "other")):
        lines = [line for one in (FULL, KNORM) for line in lines_of(one, both(90.0, 2), benchmark=benchmark)]
        write_run(results / name, lines, model=model)
    groups = open_library([results]).groups
    by_name = {(group.part.basis["model"], group.part.benchmark): group for group in groups}
    own, fidelity = by_name["tiny", "toy"], by_name["tiny", "fidelity:toy"]
    assert fidelity_group(own, groups) is fidelity is fidelity_group(fidelity, groups)
    assert fidelity_group(own, [own, by_name["other", "fidelity:toy"]]) is None
    assert kl(cell("knorm head 0.5", 0.5, 1.0)) is None
