"""Levels: which fractions, counts and thresholds a grid asks for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.config.grid import parse_removed, parse_threshold
from harness.config.variants import Variant
from harness.errors import HarnessError
from methods.base import MethodError
from tests.harness.driving import decimals, labels, planned
from tests.harness.toys import Carded


def test_fractions_default_to_a_quarter_a_half_and_three_quarters() -> None:
    assert labels("knorm") == ["knorm head 0.25", "knorm head 0.5", "knorm head 0.75"]


def test_thresholds_default_to_the_cards(toys: None) -> None:
    found = planned("carded").planned[1:]
    assert [(p.variant.level_kind, p.variant.level, p.requested_removed) for p in found] == [
        ("threshold", -3.0, 0.25),
        ("threshold", -2.0, 0.5),
        ("threshold", -1.0, 0.75),
    ]


def test_a_removed_fraction_under_threshold_runs_the_cards_tau(toys: None) -> None:
    (one,) = planned("carded", removed=decimals("0.875")).planned[1:]
    assert (one.variant.label, one.variant.level, one.requested_removed) == ("carded threshold tau=-0.5", -0.5, 0.875)


def test_a_fraction_that_the_card_lacks_is_refused_with_those_it_has(toys: None) -> None:
    with pytest.raises(MethodError, match=r"no threshold for 0\.3 removed; its card has 0\.25, 0\.5, 0\.75, 0\.875"):
        planned("carded", removed=decimals("0.3"))


def test_nothing_removed_under_threshold_is_minus_infinity(toys: None) -> None:
    (one,) = planned("carded", removed=decimals("0")).planned[1:]
    assert (one.variant.level, one.requested_removed) == (-math.inf, 0.0)


def test_explicit_thresholds_ask_for_no_fraction(toys: None) -> None:
    found = planned("carded", thresholds=(-6.0, -4.5)).planned[1:]
    assert [(p.variant.level, p.requested_removed) for p in found] == [(-6.0, None), (-4.5, None)]


def test_a_card_keyed_by_thresholds_asks_for_no_fraction(toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carded, "card", {"-6": -6.0, "-5": -5.0})
    found = planned("carded").planned[1:]
    assert [(p.variant.level, p.requested_removed) for p in found] == [(-6.0, None), (-5.0, None)]


def test_kept_tokens_never_apply_to_the_threshold_budget(toys: None) -> None:
    found = labels("carded", "knorm", keep_tokens=(128,))
    assert found == [*(f"carded threshold tau={tau}" for tau in (-3, -2, -1)), "knorm head keep=128"]


def test_fractions_and_kept_tokens_together_are_both_run() -> None:
    assert labels("knorm", removed=decimals("0.5"), keep_tokens=(7,)) == ["knorm head 0.5", "knorm head keep=7"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"thresholds": (-4.0,)}, "--budget threshold"),
        ({"keep_tokens": (8,), "budgets": ("threshold",)}, "--budget head"),
    ],
)
def test_a_level_flag_that_no_variant_takes_is_refused(toys: None, flags: dict[str, Any], message: str) -> None:
    name = "knorm" if "thresholds" in flags else "carded"
    with pytest.raises(HarnessError, match=message):
        planned(name, **flags)


def test_other_methods_take_thresholds_only_when_given() -> None:
    with pytest.raises(HarnessError, match=r"knorm has no calibrated thresholds.*--threshold=TAU"):
        planned("knorm", budgets=("threshold",))
    assert labels("knorm", budgets=("threshold",), thresholds=(-7.0,)) == ["knorm threshold tau=-7"]


@pytest.mark.parametrize("close", [(-4.1234567, -4.1234568), (-1e-9, -2e-9), (1234567.0, 1234568.0)])
def test_close_thresholds_have_labels_of_their_own(close: tuple[float, float]) -> None:
    assert len(set(labels("knorm", budgets=("threshold",), thresholds=close))) == 2


def test_large_numbers_of_kept_tokens_have_labels_of_their_own() -> None:
    found = labels("knorm", keep_tokens=(1_000_000, 1_000_001, 1_048_576))
    assert found == [f"knorm head keep={count}" for count in (1_000_000, 1_000_001, 1_048_576)]


def test_a_card_with_the_same_threshold_twice_gives_one_variant(toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carded, "card", {"0.25": -3.0, "0.5": -3.0, "0.75": -1.0})
    assert labels("carded") == ["carded threshold tau=-3", "carded threshold tau=-1"]


def test_fractions_that_are_one_float_are_one_variant() -> None:
    assert labels("knorm", removed=decimals("0.1", "0.10000000000000000001")) == ["knorm head 0.1"]


def test_an_infinite_level_is_text_in_the_columns() -> None:
    assert Variant("knorm", "threshold", "threshold", -math.inf).fields()["level"] == "-inf"


@pytest.mark.parametrize("text", ["1", "1.0", "-0.1", "abc", "1e999", "nan", "inf", "", "0.999999999999999999999"])
def test_a_removed_fraction_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(HarnessError, match=r"--removed must be .*at least 0 and less than 1, got"):
        parse_removed(text)


@pytest.mark.parametrize(("text", "value"), [("0", "0"), ("-0", "0"), ("0.875", "0.875"), ("1e-3", "0.001")])
def test_removed_fractions_are_exact(text: str, value: str) -> None:
    assert str(parse_removed(text)) == value


@pytest.mark.parametrize("text", ["nan", "-nan", "four", "", "--4"])
def test_a_threshold_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(HarnessError, match="--threshold must be a number"):
        parse_threshold(text)


def test_infinite_thresholds_are_numbers() -> None:
    assert (parse_threshold("-inf"), parse_threshold("inf")) == (-math.inf, math.inf)
