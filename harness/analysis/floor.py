"""The floor: a control whose own score says nothing carries no comparison."""

from __future__ import annotations

#: a control below this, in per cent, is at the floor whatever chance is
FLOOR = 20.0
#: the rule in words, as tables and alarms have it
AT_FLOOR = f"at chance or under {FLOOR:g}"


def is_at_floor(control: float, chance: float) -> bool:
    """Whether a mean score of the full cache is no better than ``chance``, or under :data:`FLOOR`."""
    return control <= max(chance, FLOOR - 1e-9)  # a mean of 20 may come out a rounding error below it
