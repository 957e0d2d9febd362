"""Dense causal attention with flat memory: the prefill and the extra passes use it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

#: query rows of a masked block; few, so that little of the causal triangle's empty half is computed
ROWS = 128


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
