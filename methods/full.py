"""The control: the full cache."""

from dataclasses import dataclass
from typing import ClassVar

from methods.base import Method
from methods.kvpress import Kvpress
from methods.registry import register


@register
@dataclass(frozen=True)
class Full(Method):
    """Keeps every pair. It always runs with the others, in the same batch, as their control."""

    name: ClassVar[str] = "full"
    summary: ClassVar[str] = "the full cache: keeps every pair (the control)"
    is_control: ClassVar[bool] = True
    kvpress: ClassVar[Kvpress] = Kvpress(())
    budgets: ClassVar[tuple[str, ...]] = ()
    default_budget: ClassVar[str] = "none"
