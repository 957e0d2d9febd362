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
    """Decoding of V variants over gathered caches; ``keep [V, L, H, T]`` says what the prefill leaves of the prefix.

    weights  of the last forward, for each layer and variant: attention weights ``[n, C_h]`` of each query head
    """

    def __init__(self, lm: LanguageModel, prefix: Prefix, keep: Tensor) -> None:
        self.lm = lm
        self.total = prefix.cached
        self.weights: list[list[list[Tensor]]] = []
        places = torch.arange(self.total)
        self.caches = [
            [[HeadCache(*pair, places) for pair in zip(keys, values, strict=True)] for _ in keep]
            for keys, values in zip(prefix.keys, prefix.values, strict=True)
        ]
        for row, masks in enumerate(keep):
            self.drop(row, list(masks))

    def drop(self, row: int, keep: Sequence[Tensor]) -> None:
        """Throw away what ``keep``, for each prunable layer ``[H, C]`` over all positions so far, leaves out."""
        for place, masks in enumerate(keep):
            heads = self.caches[self.lm.prunable[place]][row]
            for head, mask in enumerate(masks.cpu()):
                heads[head] = heads[head].select(mask[heads[head].positions])

    def lengths(self, row: int) -> list[int]:
        """C_h of every head of the prunable layers."""
        return [len(head.keys) for layer in self.lm.prunable for head in self.caches[layer][row]]

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int]) -> Tensor:
        """Log-probabilities ``[V, n, vocabulary]`` after each of the next n ids, the same for all variants."""
        self.weights = []
        with self.lm.engaged():
            hidden = self.lm.forward(torch.tensor([list(ids)] * len(self.caches[0])), self.total, self)
        self.total += len(ids)
        return self.lm.logits(hidden).log_softmax(dim=-1)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        asking = torch.arange(self.total, self.total + queries.shape[2])
        group, window = self.lm.info.group, self.lm.windows[layer]
        out = torch.empty_like(queries)
        self.weights.append([[] for _ in queries])
        for row, heads in enumerate(self.caches[layer]):
            for head, cache in enumerate(heads):
                cache.grow(keys[row, head], values[row, head], asking)
                seen = cache.positions <= asking.unsqueeze(1)
                if window is not None:
                    seen &= cache.positions > asking.unsqueeze(1) - window
                for query in range(head * group, (head + 1) * group):
                    logits = (queries[row, query] @ cache.keys.T) * scaling
                    weights = logits.masked_fill(~seen, float("-inf")).softmax(dim=-1)
                    self.weights[layer][row].append(weights)
                    out[row, query] = weights @ cache.values
        return out
