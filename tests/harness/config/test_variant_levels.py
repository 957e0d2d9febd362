"""Levels: which fractions, counts and thresholds a grid asks for."""

from __future__ import annotations

import math
from typing import Any

import pytest

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
    found = planned("carded", threshold=(-6.0, -4.5)).planned[1:]
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
        ({"threshold": (-4.0,)}, "--budget threshold"),
        ({"keep_tokens": (8,), "budget": ("threshold",)}, "--budget head"),
    ],
)
def test_a_level_flag_that_no_variant_takes_is_refused(toys: None, flags: dict[str, Any], message: str) -> None:
    name = "knorm" if "threshold" in flags else "carded"
    with pytest.raises(HarnessError, match=message):
        planned(name, **flags)


def test_other_methods_take_thresholds_only_when_given() -> None:
    with pytest.raises(HarnessError, match=r"knorm has no calibrated thresholds.*--threshold=TAU"):
        planned("knorm", budget=("threshold",))
    assert labels("knorm", budget=("threshold",), threshold=(-7.0,)) == ["knorm threshold tau=-7"]


@pytest.mark.parametrize("close", [(-4.1234567, -4.1234568), (-1e-9, -2e-9), (1234567.0, 1234568.0)])
def test_close_thresholds_have_labels_of_their_own(close: tuple[float, float]) -> None:
    assert len(set(labels("knorm", budget=("threshold",), threshold=close))) == 2


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


@pytest.mark.parametrize(
    ("variant", "level", "curve", "extras"),
    [
        (Variant("full", thinking=True), "", "full thinking", " thinking"),
        (Variant("knorm", "head", "removed", 0.5), "0.5", "knorm head", ""),
        (Variant("knorm", "head", "keep_tokens", 64.0, window=3), "keep=64", "knorm head keep window=3", " window=3"),
        (
            Variant("knorm", "threshold", "threshold", -4.5, query_mode="aware"),
            "tau=-4.5",
            "knorm threshold aware",
            " aware",
        ),
        (Variant("kvzip", "head", phase="decode"), "", "kvzip", ""),
    ],
)
def test_level_and_curve_are_told_from_the_fields(variant: Variant, level: str, curve: str, extras: str) -> None:
    assert (variant.level_text, variant.curve, variant.extras) == (level, curve, extras)


def test_thresholds_of_a_card_stand_beside_the_capacities_of_others(toys: None) -> None:
    cards = [f"carded threshold tau=-{tau}" for tau in (3, 2, 1)]
    assert labels("carded", "knorm", keep_tokens=(9, 12)) == [*cards, "knorm head keep=9", "knorm head keep=12"]
