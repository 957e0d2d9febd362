"""What a surrogate costs relative to the linear projections of its layer (KVzap, arXiv 2601.07891, appendix B)."""

from __future__ import annotations


def overhead(
    hidden: int, intermediate: int, query_heads: int, kv_heads: int, head_size: int, surrogate: int | None
) -> float:
    """FLOPs of a surrogate over those of a layer's projections (q, k, v, o, gate, up, down), per token; a fraction.

    Biases, the activation and attention itself are left out, as in the paper; the factor 2 of a multiply and an add
    cancels. ``surrogate`` is the width of the MLP's inner layer (D / 8 in the paper), None for a linear
    surrogate. Qwen3-8B: 0.0109 and 0.0002.
    """
    attention = 2 * hidden * query_heads * head_size + 2 * hidden * kv_heads * head_size
    feed_forward = 3 * hidden * intermediate
    added = hidden * kv_heads if surrogate is None else hidden * surrogate + surrogate * kv_heads
    return added / (attention + feed_forward)
