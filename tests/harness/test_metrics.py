"""Further figures beside the scores: means, intervals, differences from the control, and where they are shown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from harness.analysis.pass_at_k import pass_at_k
from harness.analysis.stats import mean_interval
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.schema import Facts, Line
from tests.harness.driving import Ran
from tests.harness.made_runs import FACTS, FULL, KEYDIFF, KNORM, both, edit_json, lines_of, write_run

Cli = Callable[..., Ran]
Drawn = Mapping[str, list[float]]
SIZES = {"red": 10, "blue": 16}


def drawn(seed: int, low: float = 0.0, high: float = 1.0) -> dict[str, list[float]]:
    random = np.random.default_rng(seed)
    return {subset: random.uniform(low, high, size).tolist() for subset, size in SIZES.items()}


def with_metrics(variant: Variant, scores: Drawn, **metrics: Drawn) -> list[Line]:
    """A line a score, with these metrics of the same samples."""
    lines, places = lines_of(variant, scores), dict.fromkeys(scores, 0)
    found = []
    for line in lines:
        place = places[line.subset]
        own = {name: values[line.subset][place] for name, values in metrics.items() if place < len(values[line.subset])}
        places[line.subset] += 1
        found.append(line.model_copy(update={"metrics": own}))
    return found


def cells(*parts: list[Line], facts: dict[str, Facts] = FACTS) -> dict[tuple[str, str | None], dict[str, Any]]:
    summary = summarise([line for part in parts for line in part], facts, True)
    return {(cell["method"], cell["subset"]): cell for cell in summary["cells"]}


def test_means_and_intervals_are_made_as_those_of_scores() -> None:
    kl, exact = drawn(1), drawn(2, 0, 100)
    cell = cells(with_metrics(KNORM, drawn(3), kl_mean=kl, exact_match=exact))["knorm", None]
    for name, values in (("kl_mean", kl), ("exact_match", exact)):
        assert cell["metrics"][name] == pytest.approx(fmean(map(fmean, values.values())))  # subsets weigh alike
        assert cell["metric_intervals"][name] == pytest.approx(mean_interval(list(values.values())), abs=1e-9)
    one = cells(with_metrics(KNORM, drawn(3), kl_mean=kl))["knorm", "red"]
    assert one["metric_intervals"]["kl_mean"] == pytest.approx(mean_interval([kl["red"]]), abs=1e-9)


def test_a_metric_that_is_the_score_has_the_scores_interval() -> None:
    scores = drawn(4, 0, 100)
    cell = cells(with_metrics(KNORM, scores, same=scores))["knorm", None]
    assert cell["metric_intervals"]["same"] == pytest.approx([cell["low"], cell["high"]], abs=1e-9)


def test_rollouts_of_a_sample_count_once() -> None:
    first, second = drawn(5), drawn(6)
    lines = [
        line.model_copy(update={"rollout": rollout})
        for rollout, values in enumerate((first, second))
        for line in with_metrics(KNORM, drawn(7), x=values)
    ]
    means = [[(a + b) / 2 for a, b in zip(first[name], second[name], strict=True)] for name in SIZES]
    cell = cells(lines)["knorm", None]
    assert cell["metrics"]["x"] == pytest.approx(fmean(map(fmean, means)))
    assert cell["metric_intervals"]["x"] == pytest.approx(mean_interval(means), abs=1e-9)


def test_there_is_none_under_ten_samples_a_subset_or_where_a_subset_lacks_the_metric() -> None:
    few = {"red": [0.5] * 9, "blue": [0.5] * 16}
    cell = cells(with_metrics(KNORM, drawn(8), x=few))["knorm", None]
    assert (cell["metrics"], cell["metric_intervals"]) == ({"x": 0.5}, {})
    cell = cells(with_metrics(KNORM, drawn(8), x={"red": [], "blue": [0.25] * 16}))["knorm", None]
    assert (cell["metrics"], cell["metric_intervals"]) == ({"x": 0.25}, {})
    failed = with_metrics(KNORM, drawn(8), x=drawn(9))
    failed = [ln.model_copy(update={"status": "oom"}) if ln.subset == "red" else ln for ln in failed]
    cell = cells(failed)["knorm", None]
    assert (cell["score"], cell["low"], list(cell["metrics"]), cell["metric_intervals"]) == (None, None, ["x"], {})


def test_pass_at_k_has_the_interval_of_its_problems() -> None:
    random = np.random.default_rng(10)
    right = {name: random.integers(0, 2, (size, 3)) for name, size in SIZES.items()}
    lines = [
        line.model_copy(update={"rollout": rollout})
        for rollout in range(3)
        for line in lines_of(KNORM, {name: (100.0 * own[:, rollout]).tolist() for name, own in right.items()})
    ]
    cell = cells(lines, facts={"toy": Facts(subsets=2, chance=0.0, pass_at=[1, 2, 8])})["knorm", None]
    each = [100 * (pass_at_k(3, int(problem.sum()), 2) or 0) for own in right.values() for problem in own]
    assert cell["metrics"]["pass@2"] == pytest.approx(fmean(each))
    assert cell["metric_intervals"]["pass@2"] == pytest.approx(mean_interval([each]), abs=1e-9)
    assert cell["metrics"]["pass@8"] is None
    assert cell["metric_intervals"].keys() == {"pass@1", "pass@2"}  # no interval of an error or a count


def test_differences_from_the_control_are_paired_and_those_from_a_constant_left_out() -> None:
    scores, ours, theirs = drawn(11), drawn(12, 0, 100), drawn(13, 0, 100)
    nothing = {name: [0.0] * size for name, size in SIZES.items()}
    control = with_metrics(FULL, scores, exact_match=theirs, kl_mean=nothing)
    lines = [*control, *with_metrics(KNORM, scores, exact_match=ours, kl_mean=drawn(14))]
    lines += with_metrics(KEYDIFF, scores, exact_match=theirs, kl_mean=drawn(15))
    pairs = {(p["a"], p["b"]): p for p in summarise(lines, FACTS, True)["pairs"]}
    strata = [[a - b for a, b in zip(ours[name], theirs[name], strict=True)] for name in SIZES]
    found = pairs[KNORM.label, "full"]["metrics"]
    assert found.keys() == {"exact_match"}
    own = found["exact_match"]
    assert own["difference"] == pytest.approx(fmean(map(fmean, strata)))
    assert (own["low"], own["high"]) == pytest.approx(mean_interval(strata), abs=1e-9)
    same = pairs[KEYDIFF.label, "full"]["metrics"]["exact_match"]
    assert same == {"difference": 0.0, "low": 0.0, "high": 0.0}
    assert "metrics" not in pairs[KNORM.label, KEYDIFF.label]


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
