"""Paired differences between variants: which pairs there are, what is compared, and by which test."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.analysis.grouping import grouped
from harness.analysis.paired_tests import all_pairs, scores_of
from harness.analysis.stats import mean_interval
from harness.config.variants import Variant
from harness.results.schema import Facts, Line, Pair
from tests.harness.analysis.test_stats import Values, asked, by_hand
from tests.harness.driving import Ran
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, KVZAP, RANDOM, both, changed, lines_of, summary_of, write_run


def pairs_of(*parts: list[Line]) -> list[Pair]:
    return all_pairs(grouped(line for part in parts for line in part))


def pair(a: Variant, b: Variant, *parts: list[Line]) -> Pair:
    (found,) = [p for p in pairs_of(*parts) if (p.a, p.b) == (a.label, b.label)]
    return found


def random_scores(seed: int, mean: float = 50) -> dict[str, list[float]]:
    random = np.random.default_rng(seed)
    return {name: list(np.clip(random.normal(mean, 20, size), 0, 100)) for name, size in (("red", 10), ("blue", 14))}


def test_a_difference_is_that_of_the_two_overall_scores_with_the_interval_of_its_samples() -> None:
    ours, theirs = random_scores(1), random_scores(2)
    found = pair(KNORM, FULL, lines_of(FULL, theirs), lines_of(KNORM, ours))
    strata = [[a - b for a, b in zip(ours[name], theirs[name], strict=True)] for name in ("red", "blue")]
    assert found.difference == pytest.approx(fmean(map(fmean, strata)))
    assert (found.low, found.high) == pytest.approx(mean_interval(strata), abs=1e-9)
    flat = strata[0] + strata[1]
    assert (found.better, found.worse) == (sum(d > 0 for d in flat), sum(d < 0 for d in flat))
    assert (found.n, found.n_unpaired, found.n_subsets) == (24, 0, 2)
    assert (found.test, found.exact, found.p_mcnemar) == ("sign_flip", False, None)
    weighted = np.array([d / (2 * len(own)) for own in strata for d in own])
    other = scipy_stats.permutation_test(
        (weighted,), np.sum, permutation_type="samples", n_resamples=50_000, rng=np.random.default_rng(3)
    )
    assert found.p == pytest.approx(other.pvalue, abs=0.02)


def test_right_and_wrong_answers_are_tested_by_mcnemar() -> None:
    right = {"red": [100.0] * 9 + [0.0] * 3, "blue": [100.0] * 12}
    found = pair(KNORM, FULL, lines_of(FULL, both(100)), lines_of(KNORM, right))
    assert (found.test, found.p, found.p_mcnemar) == ("mcnemar", 0.25, 0.25)
    assert (found.better, found.worse, found.difference) == (0, 3, -12.5)
    assert found.p_sign_flip == 0.25  # equal subsets: the same test


def test_only_samples_that_both_have_are_compared() -> None:
    ours = {"red": [40.0] * 11 + [None], "blue": [40.0] * 12}
    theirs = {"red": [None, *[60.0] * 11], "blue": [60.0] * 12}
    found = pair(KNORM, FULL, lines_of(FULL, theirs), lines_of(KNORM, ours))
    assert (found.n, found.n_unpaired, found.difference) == (22, 2, -20.0)
    assert found.low == pytest.approx(-20.0)


def test_another_set_of_subsets_is_never_compared() -> None:
    found = pair(KNORM, FULL, lines_of(FULL, both(90)), lines_of(KNORM, {"red": [80.0] * 12, "blue": [None] * 12}))
    assert (found.n, found.n_subsets, found.n_unpaired) == (0, 0, 24)
    assert {getattr(found, name) for name in ("difference", "low", "p", "p_holm", "tie", "test")} == {None}


def test_there_is_a_test_but_no_interval_under_ten_samples_a_subset() -> None:
    found = pair(KNORM, FULL, lines_of(FULL, both(90, 9)), lines_of(KNORM, both(40, 9)))
    assert (found.low, found.high, found.n, found.exact) == (None, None, 18, True)
    assert found.p == 2 / 2**18
    assert found.tie is False


def test_rollouts_of_a_sample_count_once_by_their_mean() -> None:
    rollouts = [lines_of(KNORM, both(score, 10), rollout=i) for i, score in enumerate((0.0, 100.0, 50.0))]
    found = pair(KNORM, FULL, lines_of(FULL, both(80, 10)), *rollouts)
    assert (found.n, found.difference, found.test) == (20, -30.0, "sign_flip")
    assert set(scores_of(line for some in rollouts for line in some).values()) == {("red", 50.0), ("blue", 50.0)}


def test_variants_meet_at_the_level_that_was_asked_for() -> None:
    other = changed(KEYDIFF, level=0.75)
    tokens = changed(RANDOM, level_kind="keep_tokens", level=8)
    parts = [lines_of(FULL, both(90)), *(lines_of(v, both(50)) for v in (KNORM, KEYDIFF, other))]
    parts += [lines_of(KVZAP, both(70), removed=0.61, requested=0.5), lines_of(tokens, both(20), removed=0.5)]
    found = pairs_of(*parts)
    level = [(p.a, p.b) for p in found if p.against == "level"]
    assert level == [(KNORM.label, KEYDIFF.label), (KNORM.label, KVZAP.label), (KEYDIFF.label, KVZAP.label)]
    assert [p.a for p in found if p.against == "control"] == [v.label for v in (KNORM, KEYDIFF, other, KVZAP, tokens)]
    assert {p.b for p in found if p.against == "control"} == {"full"}


def test_query_modes_are_no_rivals() -> None:
    aware = changed(KEYDIFF, query_mode="aware")
    parts = [lines_of(FULL, both(90)), lines_of(KNORM, both(50)), lines_of(aware, both(80))]
    found = pairs_of(*parts)
    assert [p.against for p in found] == ["control", "control"]


def test_p_is_adjusted_within_a_table_of_its_own() -> None:
    right = [100.0] * 24
    wrong = {KNORM: 6, KEYDIFF: 8, RANDOM: 2}

    def some(count: int) -> dict[str, list[float]]:
        values = [0.0] * count + right[count:]
        return {"red": values[:12], "blue": values[12:]}

    parts = [lines_of(FULL, both(100)), *(lines_of(v, some(count)) for v, count in wrong.items())]
    found = [p for p in pairs_of(*parts) if p.against == "control"]
    assert [p.p for p in found] == [2 / 2**6, 2 / 2**8, 0.5]
    assert [p.p_holm for p in found] == [2 * 2 / 2**6, 3 * 2 / 2**8, 0.5]
    assert [p.tie for p in found] == [True, False, True]  # 0.0625, 0.023, 0.5


def test_an_interval_with_zero_in_it_is_a_tie_whatever_the_p() -> None:
    scores = {"red": [90.0] * 11 + [0.0], "blue": [100.0] * 12}
    found = pair(KNORM, FULL, lines_of(FULL, {"red": [89.0] * 12, "blue": [100.0] * 12}), lines_of(KNORM, scores))
    assert found.low < 0 < found.high
    assert found.tie is True


def test_the_same_lines_give_the_same_pairs_and_another_seed_other_draws() -> None:
    lines = [*lines_of(FULL, random_scores(5, 60)), *lines_of(KNORM, random_scores(6))]
    assert all_pairs(grouped(lines), 1) == all_pairs(grouped(lines), 1)
    assert all_pairs(grouped(lines), 1)[0].low != all_pairs(grouped(lines), 2)[0].low


def test_subsets_of_unequal_size_are_not_tested_by_mcnemar() -> None:
    """Its counts would weigh each sample alike, and the difference beside them does not."""
    ours = {"red": [0.0] * 20 + [100.0] * 180, "blue": [100.0] * 6 + [0.0] * 4}
    theirs = {"red": [100.0] * 200, "blue": [0.0] * 10}
    found = pair(KNORM, FULL, lines_of(FULL, theirs), lines_of(KNORM, ours))
    assert (found.test, found.p_mcnemar, found.difference) == ("sign_flip", None, 25.0)
    assert found.p == found.p_sign_flip


# Several questions on a context: bootstraps draw contexts, permutations flip all signs of one together.


def on_contexts(variant: Variant, values: Values) -> list[Line]:
    return [
        line.model_copy(update={"sample_id": f"toy/{context}/{subset}", "context_id": context})
        for subset, own in values.items()
        for line, (context, _) in zip(lines_of(variant, {subset: [s for _, s in own]}), own, strict=True)
    ]


def test_intervals_of_cells_draw_contexts_and_want_ten_of_them() -> None:
    facts = {"toy": Facts(subsets=3, chance=0.0)}
    values = asked(10, 13, lacking=(4,))
    cells = {cell.subset: cell for cell in summary_of(on_contexts(FULL, values), facts=facts).cells}
    assert (cells[None].low, cells[None].high) == pytest.approx(by_hand(values, 0), abs=1e-9)
    assert [(cells[name].n, cells[name].n_contexts) for name in (None, "q1", "q3")] == [(38, 13), (13, 13), (12, 12)]
    assert (cells["q1"].low, cells["q1"].high) == mean_interval([[score for _, score in values["q1"]]])
    few, worse = asked(11, 9), asked(12, 9)
    summary = summary_of(*map(on_contexts, (FULL, KNORM, KEYDIFF), (few, worse, few)), facts=facts)
    assert {row.unranked for row in summary.ranks} == {"under 10 contexts a subset"}
    assert {(pair.low, pair.n, pair.n_contexts) for pair in summary.pairs} == {(None, 27, 9)}


def test_a_permutation_flips_all_signs_of_a_context_together() -> None:
    ours, theirs = asked(13, 8, lacking=(2,)), asked(14, 8, lacking=(2,))
    (found,) = pairs_of(on_contexts(FULL, theirs), on_contexts(KNORM, ours))
    sums: dict[str, float] = {}
    for subset, own in ours.items():
        for (context, a), (_, b) in zip(own, theirs[subset], strict=True):
            sums[context] = sums.get(context, 0.0) + (a - b) / (3 * len(own))
    flips = [
        abs(sum(sign * value for sign, value in zip(signs, sums.values(), strict=True)))
        for signs in itertools.product((1, -1), repeat=8)
    ]
    assert found.p == fmean(flip >= abs(sum(sums.values())) - 1e-9 for flip in flips)
    assert found.difference == pytest.approx(sum(sums.values()))
    assert (found.test, found.exact, found.n, found.n_contexts) == ("sign_flip", True, 23, 8)


@pytest.mark.parametrize(("shared", "test", "coins"), [(True, "sign_flip", 5), (False, "mcnemar", 15)])
def test_right_or_wrong_answers_on_shared_contexts_are_not_independent_coins(
    shared: bool, test: str, coins: int
) -> None:
    right, wrong = (
        {name: [(f"c{i}" if shared else f"{name}-{i}", score) for i in range(5)] for name in ("q1", "q2", "q3")}
        for score in (100.0, 0.0)
    )
    (found,) = pairs_of(on_contexts(FULL, right), on_contexts(KNORM, wrong))
    assert (found.test, found.p) == (test, 2 / 2**coins)


def test_tables_say_on_how_many_contexts_and_compare_draws_them(cli: Callable[..., Ran], tmp_path: Path) -> None:
    ours, theirs = asked(15, 13), asked(16, 13)
    lines = [*on_contexts(FULL, theirs), *on_contexts(KNORM, ours)]
    first, second = write_run(tmp_path / "first", lines), write_run(tmp_path / "second", on_contexts(KNORM, theirs))
    assert "39 on 13 contexts" in cli("report", first).out
    out = cli("compare", first, second).out
    (found,) = pairs_of(lines)
    assert "39 on 13 contexts" in out and f"{found.low:.1f} to {found.high:.1f}" in out
    few = write_run(tmp_path / "few", on_contexts(FULL, asked(17, 9)))
    assert "No interval under 10 contexts" in cli("report", few).out
