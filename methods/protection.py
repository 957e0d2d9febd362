"""Pairs that no budget may remove."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.errors import MethodError


@dataclass(frozen=True)
class Protection:
    """Pairs that a budget may not remove: first ``sinks``, last ``window``, and the whole template prefix.

    Protected pairs count inside the number kept and are taken first.
    """

    sinks: int = 0
    window: int = 0
    prefix: bool = False

    def __post_init__(self) -> None:
        for name in ("sinks", "window"):
            if getattr(self, name) < 0:
                raise MethodError(f"{name} must be 0 or more, got {getattr(self, name)}")

    def mask(self, cached: int, prefix: int) -> Tensor:
        """Bool ``[cached]``, true where a pair is protected; ``prefix`` is P, the template's length."""
        first = min(cached, max(self.sinks, prefix if self.prefix else 0))
        keep = torch.zeros(cached, dtype=torch.bool)
        keep[:first] = True
        keep[max(0, cached - self.window) :] = True
        return keep

    def __or__(self, other: Protection) -> Protection:
        return Protection(max(self.sinks, other.sinks), max(self.window, other.window), self.prefix or other.prefix)
