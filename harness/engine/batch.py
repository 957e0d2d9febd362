"""The variants of one context, as every question on it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import BLOCK_BYTES, Scored
from harness.engine.eviction import Evictor, Policy, make_evictors
from harness.engine.oom_batching import AtOnce
from harness.engine.rerotation import ORIGINAL


@dataclass
class Batch:
    """V variants over one prefix. Neither prefix nor scores are changed by what is asked of them, so each question
    starts from the same state.

    keep         bool ``[V, L, H, T]``: what the prefill left of the prefix
    policies     for each variant how it prunes while decoding, or None; none: nobody does
    positions    for each variant where its kept pairs stand, ``original`` or ``cache``; none: all original
    seed         the run's, for methods that draw numbers
    block_bytes  size of the largest temporary; results do not depend on it
    at_once      how many rows run together; lowered where memory runs out
    """

    lm: LanguageModel
    scored: Scored
    keep: Tensor
    policies: Sequence[Policy | None] = ()
    positions: Sequence[str] = ()
    seed: int = 0
    block_bytes: int = BLOCK_BYTES
    at_once: AtOnce = field(default_factory=AtOnce)

    def __post_init__(self) -> None:
        shape = (self.lm.info.layers, self.lm.info.kv_heads, self.cached)
        if self.keep.shape[1:] != shape:
            raise ValueError(f"a batch needs masks [V, {shape}], got {list(self.keep.shape)}")
        self.policies = self.policies or [None] * len(self.keep)
        self.positions = self.positions or [ORIGINAL] * len(self.keep)

    @property
    def cached(self) -> int:
        """T"""
        return self.scored.prefix.cached

    @property
    def context_seed(self) -> int:
        return self.scored.prefix.context.seed(self.seed)

    def rows(self, variants: Sequence[int]) -> Batch:
        """A batch with a row for each of these variants, which may be named several times."""
        return replace(
            self,
            keep=self.keep[list(variants)],
            policies=[self.policies[variant] for variant in variants],
            positions=[self.positions[variant] for variant in variants],
        )

    def with_control(self) -> Batch:
        """The same batch with the full cache as its first variant."""
        full = torch.ones(1, *self.keep.shape[1:], dtype=torch.bool)
        keep = torch.cat([full, self.keep.cpu()])
        return replace(self, keep=keep, policies=[None, *self.policies], positions=[ORIGINAL, *self.positions])

    def evictors(self) -> list[Evictor]:
        return make_evictors(self.policies, self.scored.scores, self.keep, self.scored.prefix.context.prefix)

    def distinct(self) -> tuple[list[int], list[int]]:
        """The first variant of each different mask, policy and positions, and for every variant its index among
        those: equal variants run once."""
        seen: dict[tuple[bytes, Policy | None, str], int] = {}
        first_of: list[int] = []
        same: list[int] = []
        for index, mask in enumerate(self.keep.flatten(1).cpu()):
            key = (mask.numpy().tobytes(), self.policies[index], self.positions[index])
            if key not in seen:
                seen[key] = len(first_of)
                first_of.append(index)
            same.append(seen[key])
        return first_of, same


def full_cache(lm: LanguageModel, scored: Scored, block_bytes: int = BLOCK_BYTES) -> Batch:
    """The one variant that keeps everything."""
    keep = torch.ones(1, lm.info.layers, lm.info.kv_heads, scored.prefix.cached, dtype=torch.bool)
    return Batch(lm, scored, keep, block_bytes=block_bytes)
