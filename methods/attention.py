"""Attention weights in blocks: no method ever holds a matrix of all queries by all keys."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: bytes of a block of logits; one that fits the processor's cache is three times as fast as a large one
BLOCK = 8 * 2**20


def log_weight_blocks(
    queries: Tensor, keys: Tensor, scaling: float, columns: slice, block_bytes: int
) -> Iterator[tuple[slice, Tensor]]:
    """Logarithms of causal softmax weights, float32, by blocks of query rows.

    queries ``[Hq, n, d]`` are the newest n tokens of keys ``[H, C, d]`` (row j stands at column C - n + j). Yields the
    rows of a block and its weights on ``columns``, ``[Hq, rows, columns]``; they may be changed in place. The softmax
    runs over all columns up to the row's own.
    """
    for rows, logits in _logit_blocks(queries, keys, scaling, block_bytes):
        yield rows, logits.log_softmax(dim=-1)[:, :, columns]


def weight_blocks(queries: Tensor, keys: Tensor, scaling: float, block_bytes: int) -> Iterator[tuple[slice, Tensor]]:
    """Causal softmax weights themselves, float32 ``[Hq, rows, columns up to the block's last row]``."""
    for rows, logits in _logit_blocks(queries, keys, scaling, block_bytes):
        yield rows, logits.softmax(dim=-1)


def _logit_blocks(queries: Tensor, keys: Tensor, scaling: float, block_bytes: int) -> Iterator[tuple[slice, Tensor]]:
    heads, cached, size = keys.shape
    query_heads, new, _ = queries.shape
    first = cached - new
    keys = keys.float()
    places = torch.arange(new, device=keys.device)
    rows = max(1, min(block_bytes, BLOCK) // (8 * query_heads * cached))
    for begin in range(0, new, rows):
        block = slice(begin, min(new, begin + rows))
        width = first + block.stop  # what comes after the block is seen by none of its rows
        scaled = queries[:, block].float() * scaling
        logits = torch.bmm(scaled.reshape(heads, -1, size), keys[:, :width].transpose(1, 2))
        logits = logits.view(query_heads, -1, width)
        later = places[block] > places[block].unsqueeze(1)
        logits[:, :, first + block.start :].masked_fill_(later, float("-inf"))
        yield block, logits
