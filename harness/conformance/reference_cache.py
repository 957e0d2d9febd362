"""A second implementation of pruned caches, whose pairs are really gone, head by head.

It shares the model's projections, RoPE and norms with the engines and no line of their attention: no bias, no prefix
that variants share, no split into prefix and suffix. Each KV head of each variant has a cache of its own length, and
the softmax is over one query head at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.capture import Captured
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


@dataclass
class Seen:
    """What one layer saw of one variant in one forward of n tokens.

    hidden          ``[n, D]`` after the input norm
    queries         ``[Hq, n, d]`` rotated
    keys, values    of each KV head ``[C_h, d]``, the new ones included
    weights         of each query head ``[n, C_h]``
    """

    hidden: Tensor
    queries: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    weights: list[Tensor]


class GatheredRun:
    """Decoding of V variants over gathered caches, ``caches[layer][variant][head]`` (all layers).

    total  tokens so far, removed ones included: the position of the next one
    seen   what each layer saw in the last forward, ``seen[layer][variant]``
    """

    def __init__(self, lm: LanguageModel, caches: list[list[list[HeadCache]]], total: int) -> None:
        self.lm = lm
        self.caches = caches
        self.total = total
        self.seen: list[list[Seen]] = []
        self._hidden = Captured()

    @classmethod
    def of(cls, lm: LanguageModel, prefix: Prefix, keep: Tensor) -> GatheredRun:
        """What ``keep [V, L, H, T]`` leaves of the prefix."""
        places = torch.arange(prefix.cached)
        caches = [
            [[HeadCache(*pair, places) for pair in zip(keys, values, strict=True)] for _ in keep]
            for keys, values in zip(prefix.keys, prefix.values, strict=True)
        ]
        run = cls(lm, caches, prefix.cached)
        for row, masks in enumerate(keep):
            run.drop(row, list(masks))
        return run

    def drop(self, row: int, keep: Sequence[Tensor]) -> None:
        """Throw away what ``keep``, for each prunable layer ``[H, C]`` over all positions so far, leaves out."""
        for place, masks in enumerate(keep):
            heads = self.caches[self.lm.prunable[place]][row]
            for head, mask in enumerate(masks.cpu()):
                heads[head] = heads[head].select(mask[heads[head].positions])

    def lengths(self, row: int) -> list[int]:
        """C_h of every head of the prunable layers."""
        return [len(head.keys) for layer in self.lm.prunable for head in self.caches[layer][row]]

    def forward(self, ids: Sequence[int]) -> Tensor:
        """Last hidden states ``[V, n, D]`` of the next n ids, the same for all variants."""
        self.seen = []
        with self._hidden.engaged(self.lm, range(len(self.lm.attention))):
            hidden = self.lm.forward(torch.tensor([list(ids)] * len(self.caches[0])), self.total, self)
        self.total += len(ids)
        return hidden

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int]) -> Tensor:
        """Log-probabilities ``[V, n, vocabulary]`` after each of the next n ids."""
        return self.lm.logits(self.forward(ids)).log_softmax(dim=-1)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        asking = torch.arange(self.total, self.total + queries.shape[2])
        out = torch.empty_like(queries)
        self.seen.append([])
        for row, heads in enumerate(self.caches[layer]):
            weights = []
            for head, cache in enumerate(heads):
                cache.grow(keys[row, head], values[row, head], asking)
                hidden = cache.positions > asking.unsqueeze(1)
                window = self.lm.windows[layer]
                if window is not None:
                    hidden |= cache.positions <= asking.unsqueeze(1) - window
                for query in range(head * self.lm.info.group, (head + 1) * self.lm.info.group):
                    logits = (queries[row, query] @ cache.keys.T) * scaling
                    weights.append(logits.masked_fill(hidden, float("-inf")).softmax(dim=-1))
                    out[row, query] = weights[-1] @ cache.values
            parts = [cache.keys for cache in heads], [cache.values for cache in heads]
            self.seen[layer].append(Seen(self._hidden.value[row], queries[row], *parts, weights))
        return out
