"""The one mask of pairs that no budget may remove."""

from __future__ import annotations

import pytest

from methods.base import MethodError, Protection


@pytest.mark.parametrize(
    ("protection", "cached", "prefix", "places"),
    [
        (Protection(), 6, 3, []),
        (Protection(sinks=2), 6, 0, [0, 1]),
        (Protection(window=2), 6, 0, [4, 5]),
        (Protection(prefix=True), 6, 3, [0, 1, 2]),
        (Protection(sinks=1, window=2), 6, 3, [0, 4, 5]),
        (Protection(sinks=4, prefix=True), 9, 2, [0, 1, 2, 3]),  # they overlap rather than add up
        (Protection(sinks=2, prefix=True), 9, 4, [0, 1, 2, 3]),
        *((Protection(window=5), cached, 0, list(range(cached))) for cached in (0, 1, 3, 5)),
        *((Protection(sinks=5), cached, 0, list(range(cached))) for cached in (0, 1, 3, 5)),
        *((Protection(prefix=True), cached, 5, list(range(cached))) for cached in (0, 1, 3, 5)),
        *((Protection(sinks=2, window=3), cached, 0, list(range(cached))) for cached in (0, 1, 3, 5)),
    ],
)
def test_the_first_the_last_and_the_template_pairs_are_protected(
    protection: Protection, cached: int, prefix: int, places: list[int]
) -> None:
    assert protection.mask(cached, prefix).nonzero().flatten().tolist() == places


def test_joined_protection_has_the_larger_of_each_part() -> None:
    joined = Protection(sinks=4, window=1) | Protection(sinks=2, window=8, prefix=True)
    assert joined == Protection(sinks=4, window=8, prefix=True)


@pytest.mark.parametrize("part", ["sinks", "window"])
def test_negative_numbers_are_refused_by_name(part: str) -> None:
    with pytest.raises(MethodError, match=f"{part} must be 0 or more, got -1"):
        Protection(**{part: -1})
