"""The masked engine: all variants of one context decode as one batch over a prefix that is stored once.

For one KV head the logits of all variants on the prefix are one matrix product ``[V * G * n, d] x [d, T]``. Each
variant then hides its own pairs with minus infinity and joins its own suffix (question and answer) in one softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.engine.attention import joint_attention
from harness.engine.batch import Batch
from harness.engine.capture import Captured, Watched
from harness.engine.rerotation import IN_CACHE, Moving, moved_keys, moving, pairs_at
from methods.attention import BLOCK
from methods.base import Step

#: suffix tokens that there is room for at first; it doubles as answers grow, since most end before their limit
ROOM = 256
#: bytes of a logit in half precision, whose sums are in float32
FLOAT = 4


class MaskedRun:
    """The state of V variants on one prefix.

    capacity   most suffix tokens (question + answer) that will be appended
    evictors   of the variants that prune while decoding; see :mod:`harness.engine.eviction`

    Pairs that move (:mod:`harness.engine.rerotation`) are hidden where they stand; their moved copies are in slots
    before the variant's suffix, which neither ``used`` nor a keep mask counts.
    """

    def __init__(self, batch: Batch, capacity: int) -> None:
        lm, keep = batch.lm, batch.keep
        self.lm = lm
        self.prefix = batch.scored.prefix
        self.capacity = capacity
        self.block_bytes = batch.block_bytes
        self.evictors = batch.evictors()
        self.context_seed = batch.context_seed
        self.used = 0
        self.hidden = Captured()
        variants = keep.shape[0]
        self.room = min(capacity, ROOM)
        shape = (variants, lm.info.kv_heads, self.room, lm.info.head_size)
        self.keys = [torch.empty(shape, dtype=lm.dtype, device=lm.device) for _ in lm.attention]
        self.values = [torch.empty(shape, dtype=lm.dtype, device=lm.device) for _ in lm.attention]
        # minus infinity where a pair is hidden: of the prefix [L][H, V, T], of slots and suffix [L][V, H, s + S]; None
        # where a layer hides nothing in any variant
        self.bias = [self._bias(keep[:, place].transpose(0, 1)) for place in range(keep.shape[1])]
        self.suffix_bias: list[Tensor | None] = [None] * keep.shape[1]
        self.slots = [0] * keep.shape[1]
        self.in_cache = [kind == IN_CACHE for kind in batch.positions]
        rows = [row for row, counted in enumerate(self.in_cache) if counted]
        if rows:
            for place in range(keep.shape[1]):
                self._show(place, rows, keep[rows, place])

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
        return self.hidden.engaged(self.lm, self.lm.prunable if reading else [], bool(self.evictors))

    def select(self, rows: Sequence[int]) -> None:
        """Keep only these variants of the batch (finished ones leave it)."""
        index = torch.tensor(rows, device=self.lm.device)
        for layer in range(len(self.keys)):  # one after the other: never two copies of all layers
            self.keys[layer] = self.keys[layer].index_select(0, index)
            self.values[layer] = self.values[layer].index_select(0, index)
        self.bias = [None if bias is None else bias.index_select(1, index) for bias in self.bias]
        self.suffix_bias = [None if bias is None else bias.index_select(0, index) for bias in self.suffix_bias]
        self.in_cache = [self.in_cache[row] for row in rows]
        self.evictors = [evictor for evictor in self.evictors if evictor.select(rows)]

    def advance(self, ids: Tensor) -> Tensor:
        """Feed ids ``[V, n]`` after the prefix and what was fed before; returns last hidden states ``[V, n, D]``.

        Positions continue from T, the uncompressed length. Call inside :meth:`engaged`.
        """
        self._grow(self.used + ids.shape[1])
        hidden = self.lm.forward(ids, self.prefix.cached + self.used, self)
        self.used += ids.shape[1]
        return hidden

    def _grow(self, tokens: int) -> None:
        """Have room for that many suffix tokens."""
        if tokens <= self.room:
            return
        if tokens > self.capacity:
            raise ValueError(f"{tokens} tokens after a prefix; there are to be {self.capacity} at most")
        room = min(self.capacity, max(tokens, 2 * self.room))
        more = room - self.room
        for layer in range(len(self.keys)):
            self.keys[layer] = pad(self.keys[layer], (0, 0, 0, more))
            self.values[layer] = pad(self.values[layer], (0, 0, 0, more))
        self.suffix_bias = [None if bias is None else pad(bias, (0, more)) for bias in self.suffix_bias]
        self.room = room

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        variants, _, new, _ = queries.shape
        place = self.lm.place.get(layer)
        first = self.used + (0 if place is None else self.slots[place])
        stop = first + new
        self.keys[layer][:, :, first:stop] = keys
        self.values[layer][:, :, first:stop] = values
        suffix_keys, suffix_values = self.keys[layer][:, :, :stop], self.values[layer][:, :, :stop]
        bias = None if place is None else self.bias[place]
        window = self.lm.windows[layer]
        hidden = None if place is None else self.suffix_bias[place]
        watching = place is not None and any("weights" in evictor.method.needs for evictor in self.evictors)
        watched = (
            Watched(variants, queries.shape[1], self.prefix.cached + self.used + new, queries) if watching else None
        )
        out = torch.empty_like(queries)
        for chosen, rows in self._blocks(variants, new, queries.shape[1], queries.element_size()):
            seen = first + rows.stop
            out[chosen, :, rows] = joint_attention(
                queries[chosen, :, rows],
                scaling,
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
            rows = _neighbours(evictor.rows)
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
            self._show(place, evictor.rows, evictor.after(step))

    def _show(self, place: int, rows: Sequence[int], keep: Tensor) -> None:
        """From the next forward on these rows of the batch see of a layer what ``keep [v, H, C]`` keeps, where they
        count its positions."""
        keep = keep.to(self.lm.device)
        own = [index for index, row in enumerate(rows) if self.in_cache[row]]
        if not own:
            self._hide(place, rows, keep)
            return
        moves = moving(keep[own])
        standing = keep.clone()
        standing[own] &= ~moves.mask
        self._make_slots(place, moves.places.shape[-1])
        self._hide(place, rows, standing)
        self._copy(place, [rows[index] for index in own], moves)

    def _hide(self, place: int, rows: Sequence[int], keep: Tensor) -> None:
        """Hide what ``keep [v, H, C]`` leaves out from these rows of the batch."""
        cached, slots = self.prefix.cached, self.slots[place]
        bias = self.bias[place]
        if bias is None:
            heads = self.lm.info.kv_heads
            bias = torch.zeros(heads, self.variants, cached, dtype=self.lm.dtype, device=self.lm.device)
        suffix = self._suffix_bias(place)
        gone = torch.zeros(keep.shape, dtype=bias.dtype, device=bias.device).masked_fill_(~keep, float("-inf"))
        chosen = _neighbours(rows)
        bias[:, chosen] = gone[:, :, :cached].transpose(0, 1)
        suffix[chosen, :, slots : slots + keep.shape[-1] - cached] = gone[:, :, cached:]
        self.bias[place] = bias

    def _suffix_bias(self, place: int) -> Tensor:
        suffix = self.suffix_bias[place]
        if suffix is None:
            shape = self.keys[self.lm.prunable[place]].shape[:3]
            suffix = self.suffix_bias[place] = torch.zeros(shape, dtype=self.lm.dtype, device=self.lm.device)
        return suffix

    def _make_slots(self, place: int, count: int) -> None:
        """At least ``count`` slots before the suffix of a layer; new ones are hidden from all rows."""
        more, layer = count - self.slots[place], self.lm.prunable[place]
        if more > 0:
            self.suffix_bias[place] = pad(self._suffix_bias(place), (more, 0), value=float("-inf"))
            self.keys[layer] = pad(self.keys[layer], (0, 0, more, 0))
            self.values[layer] = pad(self.values[layer], (0, 0, more, 0))
            self.slots[place] = count

    def _copy(self, place: int, rows: Sequence[int], moves: Moving) -> None:
        """Put the pairs that move into the slots of these rows of the batch, their keys at their new positions."""
        layer, count = self.lm.prunable[place], moves.places.shape[-1]
        suffix_keys, suffix_values = (own[layer][:, :, self.slots[place] :] for own in (self.keys, self.values))
        keys = pairs_at(moves.places, rows, self.prefix.keys[layer], suffix_keys)
        self.keys[layer][rows, :, :count] = moved_keys(self.lm, layer, keys, moves.places, moves.by)
        self.values[layer][rows, :, :count] = pairs_at(moves.places, rows, self.prefix.values[layer], suffix_values)
        suffix = self._suffix_bias(place)
        suffix[rows, :, : self.slots[place]] = float("-inf")
        suffix[rows, :, :count] = suffix.new_zeros(moves.real.shape).masked_fill_(~moves.real, float("-inf"))

    def _blocks(self, variants: int, new: int, query_heads: int, size: int) -> list[tuple[slice, slice]]:
        """Split variants x query rows so that the logits of a block stay within half the byte budget, on a CPU within
        its cache."""
        row = query_heads * (self.prefix.cached + max(self.slots, default=0) + self.capacity) * max(size, FLOAT)
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


def _neighbours(rows: Sequence[int]) -> slice | list[int]:
    """These rows of a batch as an index: a slice where they are neighbours, which is seen or written in place."""
    first, stop = rows[0], rows[-1] + 1
    return slice(first, stop) if list(rows) == list(range(first, stop)) else list(rows)
