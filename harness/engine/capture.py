"""What the engines take out of a forward for the methods: attention inputs and attention weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel


class Captured:
    """The input of the attention module that ran last, ``[B, n, D]``: after the layer's norm."""

    def __init__(self) -> None:
        self._value: Tensor | None = None

    @property
    def value(self) -> Tensor:
        assert self._value is not None, "the attention pre-hook did not run"
        return self._value

    @contextmanager
    def engaged(self, lm: LanguageModel, layers: Sequence[int], shown: bool = True) -> Iterator[None]:
        """The model with our attention in place and pre-hooks on ``layers``; all of it is taken off again. Where
        tensors are ``shown`` to methods, torch counts the writes to them (:mod:`harness.engine.guard`)."""

        def keep(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._value = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]

        handles = [lm.attention[i].register_forward_pre_hook(keep, with_kwargs=True) for i in layers]
        try:
            with lm.engaged(shown):
                yield
        finally:
            for handle in handles:
                handle.remove()


class Watched:
    """The attention weights of one layer in one decode forward, summed while its blocks are computed.

    sums, last   float32 ``[V, Hq, C]``: over all n queries, and of the newest one
    """

    def __init__(self, variants: int, query_heads: int, cached: int, like: Tensor) -> None:
        self.sums = torch.zeros(variants, query_heads, cached, device=like.device)
        self.last = torch.zeros(variants, query_heads, cached, device=like.device)

    def take(self, chosen: slice, newest: bool, weights: Tensor, start: int) -> None:
        """Weights ``[v, Hq, rows, columns]`` of some variants on columns from ``start`` on; ``newest``: the last row
        of this block is the forward's last query."""
        columns = slice(start, start + weights.shape[-1])
        self.sums[chosen, :, columns] += weights.sum(dim=2)
        if newest:
            self.last[chosen, :, columns] = weights[:, :, -1]
