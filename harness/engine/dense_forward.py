"""A dense forward of one sequence that appends to a cache: the prefill is one, an extra pass another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.attention import causal_attention
from harness.engine.capture import Captured
from harness.engine.context import Prefix
from methods.base import Observation

Observer = Callable[[Observation], None]


class DenseRun:
    """A dense forward of one sequence that appends to a cache, and shows prunable layers to an observer."""

    def __init__(
        self, lm: LanguageModel, cache: Prefix, first: int, seed: int, block_bytes: int, observer: Observer | None
    ) -> None:
        self.lm = lm
        self.cache = cache
        self.first = first
        self.seed = seed
        self.block_bytes = block_bytes
        self.observer = observer
        self.grown: list[tuple[Tensor, Tensor]] = []
        self.hidden = Captured()

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        old_keys, old_values = self.cache.keys, self.cache.values
        all_keys = torch.cat([old_keys[layer], keys[0]], dim=1) if old_keys else keys[0]
        all_values = torch.cat([old_values[layer], values[0]], dim=1) if old_values else values[0]
        window = self.lm.windows[layer]
        out = causal_attention(queries[0], all_keys, all_values, scaling, window, self.block_bytes)
        if self.first == 0:
            self.grown.append((all_keys.contiguous(), all_values.contiguous()))
        if self.observer is not None and layer in self.lm.place:
            self.observer(self._observation(layer, queries[0], all_keys, all_values, scaling))
        return out.unsqueeze(0)

    def _observation(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Observation:
        return Observation(
            layer=self.lm.place[layer],
            hidden=self.hidden.value[0],
            queries=queries,
            keys=keys,
            values=values,
            positions=torch.arange(self.first, self.first + queries.shape[1], device=queries.device),
            scaling=scaling,
            prefix=self.cache.context.prefix,
            context_seed=self.seed,
            block_bytes=self.block_bytes,
            project=lambda: self.lm.output_projection(layer),
            rotation=lambda positions: self.lm.rotation(layer, positions),
        )

    def engaged(self) -> AbstractContextManager[None]:
        """The model with our attention in place, and its attention inputs captured if someone observes."""
        shown = self.observer is not None
        return self.hidden.engaged(self.lm, self.lm.prunable if shown else [], shown)
