"""The masked engine: all variants of one context decode as one batch over a prefix that is stored once.

For one KV head the logits of all variants on the prefix are one matrix product ``[V * G * n, d] x [d, T]``. Each
variant then hides its own pairs with minus infinity and joins its own suffix (question and answer) in one softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.attention import causal_mask
from harness.engine.cache import BLOCK_BYTES, Prefix
from harness.engine.evict import Evictor
from harness.engine.observe import Captured, Watched
from methods.attention import BLOCK
from methods.base import Step

#: Softmax weights are powers of two on a CPU, where torch's ``exp`` takes a slow path for minus infinity, ``exp2`` none
LOG2_E = math.log2(math.e)


class MaskedRun:
    """The state of V variants on one prefix.

    keep      bool ``[V, L, H, T]``: what each variant still sees of the prefix
    capacity  most suffix tokens (question + answer) that will be appended
    evictors  of the variants that prune while decoding; see :mod:`harness.engine.evict`
    """

    def __init__(
        self,
        lm: LanguageModel,
        prefix: Prefix,
        keep: Tensor,
        capacity: int,
        block_bytes: int = BLOCK_BYTES,
        evictors: Sequence[Evictor] = (),
        context_seed: int = 0,
    ) -> None:
        self.lm = lm
        self.prefix = prefix
        self.capacity = capacity
        self.block_bytes = block_bytes
        self.evictors = list(evictors)
        self.context_seed = context_seed
        self.used = 0
        self.base_2 = lm.device.type == "cpu"
        self.hidden = Captured()
        variants = keep.shape[0]
        shape = (variants, lm.info.kv_heads, capacity, lm.info.head_size)
        self.keys = [torch.empty(shape, dtype=lm.dtype, device=lm.device) for _ in lm.attention]
        self.values = [torch.empty(shape, dtype=lm.dtype, device=lm.device) for _ in lm.attention]
        # minus infinity where a pair is hidden: of the prefix [L][H, V, T], of the suffix [L][V, H, S]; None where a
        # layer hides nothing in any variant
        self.bias = [self._bias(keep[:, place].transpose(0, 1)) for place in range(keep.shape[1])]
        self.suffix_bias: list[Tensor | None] = [None] * keep.shape[1]

    def _bias(self, keep: Tensor) -> Tensor | None:
        if bool(keep.all()):
            return None
        bias = torch.zeros(keep.shape, dtype=self.lm.dtype, device=self.lm.device)
        return bias.masked_fill_(~keep.to(self.lm.device), float("-inf"))

    @property
    def variants(self) -> int:
        return self.keys[0].shape[0]

    def engaged(self) -> AbstractContextManager[None]:
        """The model with our attention in place, and its attention inputs captured where a method reads them."""
        reading = any("hidden" in evictor.method.needs for evictor in self.evictors)
        return self.hidden.engaged(self.lm, self.lm.prunable if reading else [])

    def select(self, rows: Sequence[int]) -> None:
        """Keep only these variants of the batch (finished ones leave it)."""
        index = torch.tensor(rows, device=self.lm.device)
        self.keys = [keys.index_select(0, index) for keys in self.keys]
        self.values = [values.index_select(0, index) for values in self.values]
        self.bias = [None if bias is None else bias.index_select(1, index) for bias in self.bias]
        self.suffix_bias = [None if bias is None else bias.index_select(0, index) for bias in self.suffix_bias]
        self.evictors = [evictor for evictor in self.evictors if evictor.select(rows)]

    def advance(self, ids: Tensor) -> Tensor:
        """Feed ids ``[V, n]`` after the prefix and what was fed before; returns last hidden states ``[V, n, D]``.

        Positions go on from T, the uncompressed length. Call inside :meth:`engaged`.
        """
        hidden = self.lm.forward(ids, self.prefix.cached + self.used, self)
        self.used += ids.shape[1]
        return hidden

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        variants, _, new, _ = queries.shape
        stop = self.used + new
        self.keys[layer][:, :, self.used : stop] = keys
        self.values[layer][:, :, self.used : stop] = values
        suffix_keys, suffix_values = self.keys[layer][:, :, :stop], self.values[layer][:, :, :stop]
        place = self.lm.place.get(layer)
        bias = None if place is None else self.bias[place]
        window = self.lm.windows[layer]
        hidden = None if place is None else self.suffix_bias[place]
        watching = place is not None and any("weights" in evictor.method.needs for evictor in self.evictors)
        watched = Watched(variants, queries.shape[1], self.prefix.cached + stop, queries) if watching else None
        out = torch.empty_like(queries)
        for chosen, rows in self._blocks(variants, new, queries.shape[1], queries.element_size()):
            seen = self.used + rows.stop
            out[chosen, :, rows] = self._block(
                queries[chosen, :, rows] * (scaling * LOG2_E if self.base_2 else scaling),
                self.prefix.keys[layer],
                self.prefix.values[layer],
                None if bias is None else bias[:, chosen],
                suffix_keys[chosen, :, :seen],
                suffix_values[chosen, :, :seen],
                None if hidden is None else hidden[chosen, :, :seen],
                self.used + rows.start,
                window,
                None if watched is None else partial(watched.take, chosen, rows.stop == new),
            )
        if place is not None and self.evictors:
            self._evict(place, queries, keys, values, watched)
        return out

    def _evict(self, place: int, queries: Tensor, keys: Tensor, values: Tensor, watched: Watched | None) -> None:
        """Let the evictors judge a layer; what they evict is hidden from the next forward on."""
        new = queries.shape[2]
        first = self.prefix.cached + self.used
        positions = torch.arange(first, first + new, device=queries.device)
        none = queries.new_empty(0)
        for evictor in self.evictors:
            rows = evictor.rows
            step = Step(
                layer=place,
                hidden=self.hidden.value[rows] if "hidden" in evictor.method.needs else none,
                queries=queries[rows],
                keys=keys[rows],
                values=values[rows],
                positions=positions,
                context_seed=self.context_seed,
                weight_sums=none if watched is None else watched.sums[rows],
                last_weights=none if watched is None else watched.last[rows],
            )
            self._hide(place, rows, evictor.after(step))

    def _hide(self, place: int, rows: Sequence[int], keep: Tensor) -> None:
        """Hide what ``keep [v, H, C]`` leaves out from these rows of the batch."""
        cached = self.prefix.cached
        bias, suffix = self.bias[place], self.suffix_bias[place]
        if bias is None:
            heads = self.lm.info.kv_heads
            bias = torch.zeros(heads, self.variants, cached, dtype=self.lm.dtype, device=self.lm.device)
        if suffix is None:
            suffix = torch.zeros(self.keys[0].shape[:3], dtype=self.lm.dtype, device=self.lm.device)
        gone = torch.zeros(keep.shape, dtype=bias.dtype, device=bias.device).masked_fill_(~keep, float("-inf"))
        bias[:, rows] = gone[:, :, :cached].transpose(0, 1)
        suffix[rows, :, : keep.shape[-1] - cached] = gone[:, :, cached:]
        self.bias[place], self.suffix_bias[place] = bias, suffix

    def _blocks(self, variants: int, new: int, query_heads: int, size: int) -> list[tuple[slice, slice]]:
        """Split variants x query rows so that the logits of a block stay within half the byte budget, on a CPU within
        its cache."""
        row = query_heads * (self.prefix.cached + self.capacity) * size
        budget = self.block_bytes // 2
        if self.lm.device.type == "cpu":
            budget = min(budget, BLOCK)
        most = max(1, budget // row)
        rows, some = min(new, most), max(1, most // new)
        return [
            (slice(v, min(variants, v + some)), slice(r, min(new, r + rows)))
            for v in range(0, variants, some)
            for r in range(0, new, rows)
        ]

    def _block(
        self,
        queries: Tensor,
        prefix_keys: Tensor,
        prefix_values: Tensor,
        bias: Tensor | None,
        suffix_keys: Tensor,
        suffix_values: Tensor,
        suffix_bias: Tensor | None,
        start: int,
        window: int | None,
        watch: Callable[[Tensor, int], None] | None,
    ) -> Tensor:
        """Exact softmax attention over prefix and suffix together.

        queries ``[v, Hq, n, d]``, scaled (for base 2 on a CPU); prefix ``[H, T, d]``; bias ``[H, v, T]`` or None;
        suffix ``[v, H, S, d]`` up to the last query row; the first one stands at place ``start`` of it. Returns
        ``[v, Hq, n, d]``.
        """
        variants, query_heads, new, size = queries.shape
        heads, cached = prefix_keys.shape[:2]
        rows = (query_heads // heads) * new
        grouped = queries.reshape(variants, heads, rows, size)
        flat = grouped.transpose(0, 1).reshape(heads, variants * rows, size)
        on_prefix = torch.bmm(flat, prefix_keys.transpose(1, 2)).view(heads, variants, rows, cached)
        if bias is not None:
            on_prefix += bias.unsqueeze(2)
        if window is not None:  # the prefix as a layer with a sliding window sees it: by position
            offsets = torch.arange(start, start + new, device=queries.device) + cached
            near = torch.arange(cached, device=queries.device) > (offsets - window).unsqueeze(1)
            on_prefix.view(heads, variants, rows // new, new, cached).masked_fill_(~near, float("-inf"))
        on_suffix = torch.matmul(grouped, suffix_keys.transpose(-1, -2))
        if suffix_bias is not None:
            on_suffix += suffix_bias.unsqueeze(2)
        if new > 1 or window is not None:
            seen = causal_mask(start, start + new, 0, window, queries.device)
            on_suffix.view(variants, heads, rows // new, new, start + new).masked_fill_(~seen, float("-inf"))
        # a softmax over both parts; the newest token is always seen, so the maximum is finite
        peak = on_suffix.amax(dim=-1, keepdim=True)
        if cached:
            peak = torch.maximum(peak, on_prefix.amax(dim=-1, keepdim=True).transpose(0, 1))
        power = torch.exp2_ if self.base_2 else torch.exp_
        power(on_suffix.sub_(peak))
        power(on_prefix.sub_(peak.transpose(0, 1)))
        mass = on_suffix.sum(dim=-1, keepdim=True) + on_prefix.sum(dim=-1, keepdim=True).transpose(0, 1)
        mixed = torch.matmul(on_suffix, suffix_values)
        mixed += (
            torch.bmm(on_prefix.view(heads, variants * rows, cached), prefix_values)
            .view(heads, variants, rows, size)
            .transpose(0, 1)
        )
        if watch is not None:
            shape = (variants, query_heads, new, -1)
            if cached:
                watch((on_prefix.transpose(0, 1) / mass).float().reshape(*shape[:3], cached), 0)
            watch((on_suffix / mass).float().reshape(*shape), cached)
        return (mixed / mass).reshape(variants, query_heads, new, size)
