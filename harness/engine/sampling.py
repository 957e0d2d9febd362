"""Sampling whose noise depends on the problem, the rollout and the step alone: the same for every variant."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.adapter import EngineError


@dataclass(frozen=True)
class Sampling:
    """Temperature, nucleus and top-k sampling, in the order in which transformers applies them.

    temperature  above 0; for the most likely token a question has no sampling at all
    stream       what the noise is drawn from beside rollout and step: the run's seed and the problem
    top_k        0 = no limit
    """

    temperature: float
    stream: str
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise EngineError(
                f"a sampling temperature must be above 0, got {self.temperature}; "
                "for greedy answers give a sample no sampling (None)"
            )
        if not 0 <= self.top_p <= 1 or self.top_k < 0:
            raise EngineError(
                f"top_p must be from 0 to 1 and top_k 0 (no limit) or more, got {self.top_p}, {self.top_k}"
            )

    def pick(self, logits: Tensor, rollouts: Sequence[int], step: int) -> Tensor:
        """One token for each row of logits ``[B, vocabulary]``; rows of the same rollout share their noise.

        Adds Gumbel noise to the filtered logits and takes the largest, which is a draw from their softmax: two variants
        with nearly the same logits nearly always draw the same token.
        """
        filtered = self._filter(logits.float() / self.temperature)
        width = logits.shape[-1]
        noise = {rollout: _gumbel(f"{self.stream}/{rollout}/{step}", width) for rollout in set(rollouts)}
        drawn = torch.stack([noise[rollout] for rollout in rollouts]).to(logits.device)
        return (filtered + drawn).argmax(dim=-1)

    def _filter(self, logits: Tensor) -> Tensor:
        most = logits.shape[-1]
        if self.top_k:
            least = logits.topk(min(self.top_k, most), dim=-1).values[:, -1:]
            outside = logits < least
            logits = logits.masked_fill(outside, float("-inf"))
            most -= int(outside.sum(dim=-1).min())  # those tied with the last one stay too
        if self.top_p < 1:
            ordered, places = logits.topk(most, dim=-1)  # of a large vocabulary a fraction of the time of a whole sort
            shares = ordered.softmax(dim=-1)
            beyond = shares.cumsum(dim=-1) - shares >= self.top_p
            beyond[:, 0] = False  # the first token is always inside
            outside = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, beyond)
            logits = logits.masked_fill(outside, float("-inf"))
        return logits


def _gumbel(stream: str, width: int) -> Tensor:
    """Standard Gumbel noise ``[width]``, drawn on the CPU so that every device gets the same."""
    seed = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "big") % 2**63
    uniform = torch.rand(width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return -(-uniform.clamp(min=1e-300).log()).log().float()
