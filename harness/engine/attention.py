"""Attention: dense and causal with flat memory, for the prefill and the extra passes; and over a prefix that the
variants of a batch share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

#: query rows of a masked block; few, so that little of the causal triangle's empty half is computed
ROWS = 128
HALF = (torch.float16, torch.bfloat16)
#: Softmax weights are powers of two on a CPU, where torch's ``exp`` takes a slow path for minus infinity, ``exp2`` none
LOG2_E = math.log2(math.e)


def causal_attention(
    queries: Tensor, keys: Tensor, values: Tensor, scaling: float, window: int | None, block_bytes: int
) -> Tensor:
    """Causal attention of the newest n tokens over all C cached ones, exact, without a ``C x C`` matrix.

    queries ``[Hq, n, d]``, keys and values ``[H, C, d]`` of which the last n columns belong to the queries; a sliding
    ``window`` counts the token itself. Returns ``[Hq, n, d]``. Rows are split so that a block's mask stays within
    ``block_bytes``.
    """
    new, cached = queries.shape[1], keys.shape[1]
    grouped = queries.shape[0] != keys.shape[0]
    if new == cached and window is None:
        out = scaled_dot_product_attention(
            queries[None], keys[None], values[None], is_causal=True, scale=scaling, enable_gqa=grouped
        )
        return out[0]
    first = cached - new
    rows = max(1, min(new, ROWS, block_bytes // max(1, 8 * cached)))  # bool mask and its float copy
    blocks = []
    for start in range(0, new, rows):
        stop = min(new, start + rows)
        low = 0 if window is None else max(0, first + start - window + 1)
        mask = causal_mask(first + start, first + stop, low, window, queries.device)
        span = slice(low, first + stop)
        out = scaled_dot_product_attention(
            queries[None, :, start:stop],
            keys[None, :, span],
            values[None, :, span],
            attn_mask=mask,
            scale=scaling,
            enable_gqa=grouped,
        )
        blocks.append(out[0])
    return torch.cat(blocks, dim=1)


def causal_mask(start: int, stop: int, low: int, window: int | None, device: torch.device) -> Tensor:
    """Bool ``[stop - start, stop - low]``: which columns low..stop the rows start..stop see."""
    rows = torch.arange(start, stop, device=device).unsqueeze(1)
    columns = torch.arange(low, stop, device=device)
    seen = columns <= rows
    return seen if window is None else seen & (columns > rows - window)


def joint_attention(
    queries: Tensor,
    scaling: float,
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
    """Exact softmax attention of v variants over the prefix that they share and each one's suffix together.

    queries ``[v, Hq, n, d]``; prefix ``[H, T, d]``, its bias ``[H, v, T]`` or None; suffix ``[v, H, S, d]`` up to the
    last query row, its bias ``[v, H, S]`` or None. The first row stands at place ``start`` of the suffix, after slots
    that all rows may see. ``watch`` is called with weights ``[v, Hq, n, columns]`` and their first column, the slots
    not among them. Returns ``[v, Hq, n, d]``.
    """
    base_2, dtype = queries.device.type == "cpu", queries.dtype
    scaling = scaling * LOG2_E if base_2 else scaling
    if dtype not in HALF:  # where it would be rounded, the products are scaled instead
        queries = queries * scaling
    variants, query_heads, new, size = queries.shape
    heads, cached = prefix_keys.shape[:2]
    rows = (query_heads // heads) * new
    stop = suffix_keys.shape[2]
    slots = stop - start - new
    grouped = queries.reshape(variants, heads, rows, size)
    flat = grouped.transpose(0, 1).reshape(heads, variants * rows, size)
    on_prefix = product(flat, prefix_keys.transpose(1, 2)).view(heads, variants, rows, cached)
    on_suffix = product(grouped, suffix_keys.transpose(-1, -2))
    if dtype in HALF:
        on_prefix *= scaling
        on_suffix *= scaling
    if bias is not None:
        on_prefix += bias.unsqueeze(2)
    if window is not None:  # the prefix as a layer with a sliding window sees it: by position
        offsets = torch.arange(start, start + new, device=queries.device) + cached
        near = torch.arange(cached, device=queries.device) > (offsets - window).unsqueeze(1)
        on_prefix.view(heads, variants, rows // new, new, cached).masked_fill_(~near, float("-inf"))
    if suffix_bias is not None:
        on_suffix += suffix_bias.unsqueeze(2)
    if new > 1 or window is not None:
        seen = causal_mask(stop - new, stop, 0, window, queries.device)
        on_suffix.view(variants, heads, rows // new, new, stop).masked_fill_(~seen, float("-inf"))
    # a softmax over both parts; the newest token is always seen, so the maximum is finite
    peak = on_suffix.amax(dim=-1, keepdim=True)
    if cached:
        peak = torch.maximum(peak, on_prefix.amax(dim=-1, keepdim=True).transpose(0, 1))
    power = torch.exp2_ if base_2 else torch.exp_
    power(on_suffix.sub_(peak))
    power(on_prefix.sub_(peak.transpose(0, 1)))
    mass = on_suffix.sum(dim=-1, keepdim=True) + on_prefix.sum(dim=-1, keepdim=True).transpose(0, 1)
    if dtype in HALF:  # weights of 1 at most, as they are rounded to the values' type
        on_suffix /= mass
        on_prefix /= mass.transpose(0, 1)
        mass = torch.ones_like(mass)
    mixed = product(on_suffix.to(dtype), suffix_values)
    mixed += (
        product(on_prefix.view(heads, variants * rows, cached).to(dtype), prefix_values)
        .view(heads, variants, rows, size)
        .transpose(0, 1)
    )
    if watch is not None:
        shape = (variants, query_heads, new, -1)
        if cached:
            watch((on_prefix.transpose(0, 1) / mass).float().reshape(*shape[:3], cached), 0)
        watch((on_suffix[..., slots:] / mass).float().reshape(*shape), cached)
    return (mixed / mass).to(dtype).reshape(variants, query_heads, new, size)


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of equal batches; of half precision in float32, since logits may be larger than float16 has numbers and
    a softmax over bfloat16 ones would have two digits."""
    if a.dtype not in HALF:
        return torch.matmul(a, b)
    if a.device.type == "cpu":
        return torch.matmul(a.float(), b.float())
    flat = torch.bmm(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), out_dtype=torch.float32)
    return flat.view(*a.shape[:-1], b.shape[-1])
