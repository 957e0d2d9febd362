"""Questions on a context are not independent: bootstraps draw contexts, permutations flip all signs of one together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from harness.analysis import stats
from harness.analysis.paired_tests import all_pairs
from harness.analysis.stats import DRAWS, mean_interval, mean_intervals, unit_sums
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.schema import Facts, Line
from tests.harness.driving import Ran
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, write_run

#: (context, score) of each sample of a subset
Values = Mapping[str, Sequence[tuple[str, float]]]


def made(seed: int, contexts: int, lacking: Sequence[int] = ()) -> Values:
    """Three questions on each context, which has a level of its own; the contexts ``lacking`` have two."""
    random = np.random.default_rng(seed)
    levels = random.uniform(20, 80, contexts)
    return {
        subset: [
            (f"c{place}", float(np.clip(random.normal(levels[place], 10), 0, 100)))
            for place in range(contexts)
            if subset != "q3" or place not in lacking
        ]
        for subset in ("q1", "q2", "q3")
    }


def by_hand(values: Values, seed: int) -> tuple[float, float]:
    """The bootstrap of contexts, draw by draw, that joins the values of all drawn contexts in each subset."""
    contexts = list(dict.fromkeys(context for own in values.values() for context, _ in own))
    picked = np.random.default_rng(seed).integers(len(contexts), size=(DRAWS, len(contexts)))
    own = {
        subset: [[score for context, score in some if context == name] for name in contexts]
        for subset, some in values.items()
    }
    means = []
    for draw in picked.tolist():
        drawn = [[score for place in draw for score in some[place]] for some in own.values()]
        if all(drawn):
            means.append(fmean(map(fmean, drawn)))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def split(values: Values) -> tuple[list[list[float]], list[list[str]]]:
    return [[s for _, s in own] for own in values.values()], [[c for c, _ in own] for own in values.values()]


@pytest.mark.parametrize("lacking", [(), (2, 7)])
def test_whole_contexts_are_drawn_over_all_subsets_at_once(lacking: Sequence[int]) -> None:
    values = made(1, 14, lacking)
    scores, units = split(values)
    expected = by_hand(values, seed=3)
    assert mean_interval(scores, 3, units=units) == pytest.approx(expected, abs=1e-9)
    tables = [np.array(own)[:, None] for own in scores]
    assert mean_intervals(tables, 3, units=units)[0] == pytest.approx(expected, abs=1e-9)
    low, high = mean_interval(scores, 3) or (0, 0)
    assert expected[1] - expected[0] > 1.3 * (high - low)  # what it is to take questions for independent


def test_several_samples_of_a_context_in_one_subset_are_drawn_together() -> None:
    random = np.random.default_rng(4)
    values = {"only": [(f"c{i}", float(random.normal(50 + i, 5))) for i in range(12) for _ in range(1 + i % 3)]}
    scores, units = split(values)
    assert mean_interval(scores, 5, units=units) == pytest.approx(by_hand(values, 5), abs=1e-9)


def test_the_same_question_asked_thrice_says_no_more_than_once() -> None:
    scores = list(np.random.default_rng(6).normal(50, 20, 15))
    units = [f"c{i}" for i in range(15)]
    once = mean_interval([scores])
    assert mean_interval([scores] * 3, units=[units] * 3) == pytest.approx(once, abs=1e-9)
    assert mean_interval([scores * 3], units=[units * 3]) == pytest.approx(once, abs=1e-9)


def test_one_sample_a_context_changes_nothing() -> None:
    random = np.random.default_rng(7)
    strata = [random.normal(50, 20, 11), random.choice([0.0, 100.0], 30)]
    units = [[f"{stratum}/{i}" for i in range(len(own))] for stratum, own in enumerate(strata)]
    assert mean_interval(strata, 8, units=units) == mean_interval(strata, 8)
    tables = [random.normal(size=(len(own), 3)) for own in strata]
    assert mean_intervals(tables, 8, units=units) == mean_intervals(tables, 8)
    assert np.array_equal(unit_sums(tables[0], units[0]), tables[0])


@pytest.mark.parametrize(("contexts", "there"), [(9, False), (10, True)])
def test_there_is_no_interval_under_ten_contexts(contexts: int, there: bool) -> None:
    scores, units = [float(i) for i in range(30)], [i % contexts for i in range(30)]
    assert (mean_interval([scores], units=[units]) is not None) == there
    assert (mean_intervals([np.array(scores)[:, None]], units=[units])[0] is not None) == there


def test_draws_that_leave_a_subset_empty_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "FEWEST", 1)
    values = {"q1": [(f"c{i}", 10.0 * i) for i in range(10)], "q2": [("c3", 20.0), ("c4", 90.0)]}
    scores, units = split(values)  # one draw in nine has neither c3 nor c4
    expected = by_hand(values, 9)
    assert mean_interval(scores, 9, units=units) == pytest.approx(expected, abs=1e-9)
    assert mean_intervals([np.array(own)[:, None] for own in scores], 9, units=units)[0] == pytest.approx(expected)


def lines_of(variant: Variant, values: Values, **more: Any) -> list[Line]:
    return [
        Line(
            **{
                **variant.fields(),
                "sample_id": f"toy/{context}/{subset}",
                "context_id": context,
                "benchmark": "toy",
                "subset": subset,
                "length": 64,
                "score": score,
                "status": "ok",
                "context_tokens": 60,
                "removed_context": variant.level or 0.0,
                **more,
            }
        )
        for subset, own in values.items()
        for context, score in own
    ]


def test_a_cells_interval_is_that_of_its_contexts() -> None:
    values = made(10, 13, lacking=(4,))
    summary = summarise(lines_of(FULL, values), {"toy": Facts(subsets=3, chance=0.0)}, True)
    cells = {cell["subset"]: cell for cell in summary["cells"]}
    assert (cells[None]["low"], cells[None]["high"]) == pytest.approx(by_hand(values, 0), abs=1e-9)
    assert [(cells[name]["n"], cells[name]["n_contexts"]) for name in (None, "q1", "q3")] == [
        (38, 13),
        (13, 13),
        (12, 12),
    ]
    scores, _ = split(values)
    assert (cells["q1"]["low"], cells["q1"]["high"]) == mean_interval([scores[0]])


def test_what_has_too_few_contexts_says_so() -> None:
    values, worse = made(11, 9), made(12, 9)
    parts = [lines_of(variant, some) for variant, some in ((FULL, values), (KNORM, worse), (KEYDIFF, values))]
    summary = summarise([line for part in parts for line in part], {"toy": Facts(subsets=3, chance=0.0)}, True)
    assert {row["unranked"] for row in summary["ranks"]} == {"under 10 contexts a subset"}
    assert {pair["low"] for pair in summary["pairs"]} == {None}
    assert {(pair["n"], pair["n_contexts"]) for pair in summary["pairs"]} == {(27, 9)}


def test_a_permutation_flips_all_signs_of_a_context_together() -> None:
    ours, theirs = made(13, 8, lacking=(2,)), made(14, 8, lacking=(2,))
    (found,) = all_pairs([*lines_of(FULL, theirs), *lines_of(KNORM, ours)])
    sums: dict[str, float] = {}
    for subset, own in ours.items():
        for (context, a), (_, b) in zip(own, theirs[subset], strict=True):
            sums[context] = sums.get(context, 0.0) + (a - b) / (3 * len(own))
    observed = abs(sum(sums.values()))
    flips = [
        abs(sum(sign * value for sign, value in zip(signs, sums.values(), strict=True)))
        for signs in itertools.product((1, -1), repeat=8)
    ]
    assert found["p"] == fmean(flip >= observed - 1e-9 for flip in flips)
    assert found["difference"] == pytest.approx(sum(sums.values()))
    assert (found["test"], found["exact"], found["n"], found["n_contexts"]) == ("sign_flip", True, 23, 8)


def test_right_or_wrong_answers_on_shared_contexts_are_no_coins_of_mcnemars() -> None:
    right = {subset: [(f"c{i}", 100.0) for i in range(5)] for subset in ("q1", "q2", "q3")}
    wrong = {subset: [(name, 0.0) for name, _ in own] for subset, own in right.items()}
    (found,) = all_pairs([*lines_of(FULL, right), *lines_of(KNORM, wrong)])
    assert (found["test"], found["p"], found["p_mcnemar"]) == ("sign_flip", 2 / 2**5, None)  # McNemar: 2 / 2**15
    apart = {subset: [(f"{subset}-{name}", score) for name, score in own] for subset, own in right.items()}
    lines = [*lines_of(FULL, apart), *lines_of(KNORM, {s: [(n, 0.0) for n, _ in own] for s, own in apart.items()})]
    (found,) = all_pairs(lines)
    assert (found["test"], found["p"]) == ("mcnemar", 2 / 2**15)


def test_tables_say_on_how_many_contexts_and_compare_draws_them(cli: Callable[..., Ran], tmp_path: Path) -> None:
    ours, theirs = made(15, 13), made(16, 13)
    lines = [*lines_of(FULL, theirs), *lines_of(KNORM, ours)]
    first, second = write_run(tmp_path / "first", lines), write_run(tmp_path / "second", lines_of(KNORM, theirs))
    assert "39 on 13 contexts" in cli("report", first).out
    out = cli("compare", first, second).out
    (found,) = all_pairs(lines)
    assert "39 on 13 contexts" in out and f"{found['low']:.1f} to {found['high']:.1f}" in out
    few = write_run(tmp_path / "few", lines_of(FULL, made(17, 9)))
    assert "No interval under 10 contexts a subset." in cli("report", few).out
