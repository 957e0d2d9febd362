"""Random scores: the floor that every method has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Method, Observation
from methods.registry import register


@register
@dataclass(frozen=True)
class Random(Method):
    """s ~ U[0, 1), drawn anew for each (seed, context, layer, head).

    Drawn on the CPU in float32 and moved, so that a GPU run removes the same pairs as a CPU run.
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "uniform random scores"

    def score(self, seen: Observation) -> Tensor:
        generator = torch.Generator().manual_seed((seen.context_seed * 1009 + seen.layer) % 2**63)
        draw = torch.rand(seen.keys.shape[:2], generator=generator, dtype=torch.float32)
        return draw.to(seen.keys.device)
