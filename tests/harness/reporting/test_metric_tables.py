"""Further figures, groups of subsets and pairs that differ: where a report shows them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.summary import summarise
from tests.harness.analysis.test_metrics import SIZES, drawn, with_metrics
from tests.harness.driving import Ran
from tests.harness.made_runs import FACTS, FULL, KEYDIFF, KNORM, both, edit_json, lines_of, write_run

Cli = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    def exact(seed: int) -> dict[str, list[float]]:
        return {name: [100.0 * (value > 0.5) for value in own] for name, own in drawn(seed).items()}

    near = {name: [80.0] * size for name, size in SIZES.items()}
    nothing = {name: [0.0] * size for name, size in SIZES.items()}
    lines = [*with_metrics(FULL, near, exact_match=exact(20), kl_mean=nothing)]
    lines += with_metrics(KNORM, near, exact_match=exact(21), kl_mean=drawn(22))
    lines += with_metrics(KEYDIFF, {**near, "red": [70.0] * 10}, exact_match=exact(23), kl_mean=drawn(24))
    folder = write_run(tmp_path / "run", lines)
    groups = {"warm": ["red"], "all but green": ["red", "blue"], "cold": ["blue", "green"]}
    facts = FACTS["toy"].model_copy(update={"groups": groups})
    edit_json(folder / "run.json", facts={"toy": facts.to_json()})
    edit_json(folder / "summary.json", **summarise(lines, {"toy": facts}, True).to_json())
    return folder


def text_of(cell: Mapping[str, Any], name: str, form: str) -> str:
    low, high = cell["metric_intervals"][name]
    return f"{form.format(cell['metrics'][name])} ({form.format(low)} to {form.format(high)})"


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_intervals_groups_and_pairs_that_differ_are_printed(cli: Cli, run: Path, form: str) -> None:
    out = cli("report", run, "--format", form).out
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    cell = next(c for c in summary["cells"] if c["subset"] is None and c["method"] == "knorm")
    pair = next(p for p in summary["pairs"] if (p["a"], p["against"]) == (KNORM.label, "control"))
    differs = pair["metrics"]["exact_match"]
    for text in (
        text_of(cell, "kl_mean", "{:.4f}"),
        text_of(cell, "exact_match", "{:.1f}"),
        f"{differs['difference']:+.1f} ({differs['low']:.1f} to {differs['high']:.1f})",
        "exact against control",
        "Further figures, with 95 % intervals",
        "1 of 1 pairs of variants at like removed differ beyond a tie",
        "Groups of subsets",
        "all but green",
        "cold (1 of 2)",
    ):
        assert text in out
    assert "KL against control" not in out
    block = out[out.index("Groups of subsets") : out.index("Further figures")]
    figures = [re.findall(r"\d\d\.\d", line) for line in re.split(r"\n|<tr", block) if "keydiff head" in line]
    assert figures == [["75.0", "70.0", "75.0", "80.0"]]


def test_csv_has_them_as_objects(cli: Cli, run: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("report", run, "--format", "csv").out)))
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    for row, cell in zip(rows, summary["cells"], strict=True):
        assert json.loads(row["metric_intervals"]) == cell["metric_intervals"] != {}
        assert cell["subset"] is not None or json.loads(row["groups"]) == cell["groups"] != {}
    pair = next(p for p in summary["pairs"] if (p["a"], p["against"]) == (KNORM.label, "control"))
    row = next(row for row in rows if (row["variant"], row["subset"]) == (KNORM.label, ""))
    assert json.loads(row["metric_differences"]) == pair["metrics"]


def test_means_of_few_subsets_say_so(cli: Cli, run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    few = [{**cell, "of_subsets": 5} if cell["subset"] is None else cell for cell in summary["cells"]]
    edit_json(run / "summary.json", cells=few)
    out = cli("report", run, "--format", "markdown").out
    assert "| variant | all (2 of 5) |" in out and "Means of 2 of 5 subsets." in out


def test_ties_are_not_counted_as_told_apart(cli: Cli, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [*lines_of(FULL, both(90)), *lines_of(KNORM, both(80))])
    assert "pairs of variants" not in cli("report", run).out  # one variant, no pair
    run = write_run(tmp_path / "two", [line for v in (FULL, KNORM, KEYDIFF) for line in lines_of(v, both(80))])
    assert "0 of 1 pairs of variants at like removed differ" in cli("report", run).out


def test_without_metrics_or_groups_there_is_no_table_of_them(cli: Cli, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [*lines_of(FULL, both(90)), *lines_of(KNORM, both(80))])
    out = cli("report", run).out
    assert "Further figures" not in out and "Groups of subsets" not in out


def test_variants_that_removed_unlike_fractions_are_not_counted(cli: Cli, tmp_path: Path) -> None:
    lines = [*lines_of(FULL, both(90)), *lines_of(KNORM, both(80)), *lines_of(KEYDIFF, both(10))]
    assert "1 of 1 pairs of variants" in cli("report", write_run(tmp_path / "near", lines)).out
    lines = [*lines_of(FULL, both(90)), *lines_of(KNORM, both(80)), *lines_of(KEYDIFF, both(10), removed=0.4)]
    assert "pairs of variants" not in cli("report", write_run(tmp_path / "far", lines)).out
