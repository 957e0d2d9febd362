"""A second implementation of a pruned cache: one sequence, and pairs that are really gone, head by head.

It shares the model with the masked engine and no line of its attention: no bias, no batch of variants, no split into
prefix and suffix. Each KV head has a cache of its own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Prefix


@dataclass
class HeadCache:
    """What one KV head of one layer has kept: keys and values ``[C_h, d]`` and their positions ``[C_h]``."""

    keys: Tensor
    values: Tensor
    positions: Tensor

    def select(self, keep: Tensor) -> HeadCache:
        return HeadCache(self.keys[keep], self.values[keep], self.positions[keep])

    def grow(self, keys: Tensor, values: Tensor, positions: Tensor) -> None:
        self.keys = torch.cat([self.keys, keys])
        self.values = torch.cat([self.values, values])
        self.positions = torch.cat([self.positions, positions])


class GatheredRun:
    """Decoding of one variant over gathered caches; ``keep [L, H, T]`` says what the prefill leaves of the prefix."""

    def __init__(self, lm: LanguageModel, prefix: Prefix, keep: Tensor) -> None:
        self.lm = lm
        self.total = prefix.cached
        places = torch.arange(self.total)
        self.caches = [
            [HeadCache(keys[head], values[head], places) for head in range(lm.info.kv_heads)]
            for keys, values in zip(prefix.keys, prefix.values, strict=True)
        ]
        self.drop(list(keep))

    def drop(self, keep: Sequence[Tensor]) -> None:
        """Throw away what ``keep``, for each prunable layer ``[H, C]`` over all positions so far, leaves out."""
        for place, masks in enumerate(keep):
            heads = self.caches[self.lm.prunable[place]]
            for head, mask in enumerate(masks.cpu()):
                heads[head] = heads[head].select(mask[heads[head].positions])

    @property
    def lengths(self) -> list[int]:
        """C_h of every head of the prunable layers."""
        return [len(head.keys) for layer in self.lm.prunable for head in self.caches[layer]]

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int]) -> Tensor:
        """Log-probabilities ``[n, vocabulary]`` after each of the next n ids."""
        with self.lm.engaged():
            hidden = self.lm.forward(torch.tensor([list(ids)]), self.total, self)
        self.total += len(ids)
        return self.lm.logits(hidden)[0].log_softmax(dim=-1)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        new = queries.shape[2]
        asking = torch.arange(self.total, self.total + new)
        group = self.lm.info.group
        out = torch.empty_like(queries)
        for head, cache in enumerate(self.caches[layer]):
            cache.grow(keys[0, head], values[0, head], asking)
            seen = cache.positions <= asking.unsqueeze(1)
            window = self.lm.windows[layer]
            if window is not None:
                seen &= cache.positions > asking.unsqueeze(1) - window
            for query in range(head * group, (head + 1) * group):
                logits = (queries[0, query] @ cache.keys.T) * scaling
                weights = logits.masked_fill(~seen, float("-inf")).softmax(dim=-1)
                out[0, query] = weights @ cache.values
        return out
