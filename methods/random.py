"""Random scores: the floor that every method has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Method, Observation, Step
from methods.kvpress import Kvpress
from methods.registry import register


@register
@dataclass(frozen=True)
class Random(Method):
    """s ~ U[0, 1), drawn independently for each (seed, context, layer, head).

    Drawn on the CPU in float32 and then moved, so that a GPU run removes the same pairs as a CPU run.
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "uniform random scores"
    kvpress: ClassVar[Kvpress] = Kvpress(decodes=True)
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")

    def score(self, seen: Observation) -> Tensor:
        return self._draw(seen.context_seed, seen.layer, 0, seen.keys)

    def score_new(self, step: Step) -> Tensor:
        draws = [self._draw(step.context_seed, step.layer, int(p), step.keys[0, :, :1]) for p in step.positions]
        return torch.cat(draws, dim=-1).expand(step.keys.shape[0], -1, -1)

    def _draw(self, seed: int, layer: int, position: int, like: Tensor) -> Tensor:
        """Random numbers ``[H, m]`` for the pairs of ``like [H, m, d]``, the first of which has this ``position``."""
        generator = torch.Generator().manual_seed(((seed * 1009 + layer) * 2_097_169 + position) % 2**63)
        return torch.rand(like.shape[:2], generator=generator, dtype=torch.float32).to(like.device)
