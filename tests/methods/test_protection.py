"""The one mask of pairs that no budget may remove."""

from __future__ import annotations

import pytest

from methods.base import MethodError, Protection


def protected(protection: Protection, cached: int, prefix: int = 0) -> list[int]:
    return protection.mask(cached, prefix).nonzero().flatten().tolist()


def test_sinks_window_and_prefix_are_the_first_the_last_and_the_template_pairs() -> None:
    assert protected(Protection(), 6, prefix=3) == []
    assert protected(Protection(sinks=2), 6) == [0, 1]
    assert protected(Protection(window=2), 6) == [4, 5]
    assert protected(Protection(prefix=True), 6, prefix=3) == [0, 1, 2]
    assert protected(Protection(sinks=1, window=2), 6, prefix=3) == [0, 4, 5]


def test_sinks_and_prefix_overlap_rather_than_add_up() -> None:
    assert protected(Protection(sinks=4, prefix=True), 9, prefix=2) == [0, 1, 2, 3]
    assert protected(Protection(sinks=2, prefix=True), 9, prefix=4) == [0, 1, 2, 3]


@pytest.mark.parametrize("cached", [0, 1, 3, 5])
def test_a_context_not_longer_than_the_protection_is_protected_as_a_whole(cached: int) -> None:
    everything = list(range(cached))
    assert protected(Protection(window=5), cached) == everything
    assert protected(Protection(sinks=5), cached) == everything
    assert protected(Protection(prefix=True), cached, prefix=5) == everything
    assert protected(Protection(sinks=2, window=3), cached) == everything


def test_joined_protection_has_the_larger_of_each_part() -> None:
    joined = Protection(sinks=4, window=1) | Protection(sinks=2, window=8, prefix=True)
    assert joined == Protection(sinks=4, window=8, prefix=True)


@pytest.mark.parametrize("part", ["sinks", "window"])
def test_negative_numbers_are_refused_by_name(part: str) -> None:
    with pytest.raises(MethodError, match=f"{part} must be 0 or more, got -1"):
        Protection(**{part: -1})
