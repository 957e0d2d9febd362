"""Rotary position embeddings as the model applies them, and their inverse.

cos and sin are ``[n, r]`` as a transformers rotary module returns them (both halves alike, the model's attention
scaling included); only the first r of the d dimensions turn.
"""

from __future__ import annotations

import torch
from torch import Tensor


def turn_half(vectors: Tensor) -> Tensor:
    """(a, b) -> (-b, a) for the two halves of the last dimension: the rotation by 90 degrees of every pair."""
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def rotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Vectors ``[..., n, d]`` turned to the positions of cos and sin."""
    turning, still = vectors.split([cos.shape[-1], vectors.shape[-1] - cos.shape[-1]], dim=-1)
    return torch.cat([turning * cos + turn_half(turning) * sin, still], dim=-1)


def unrotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """What :func:`rotate` turned, as it was before."""
    scale = cos.square() + sin.square()  # the square of the attention scaling
    return rotate(vectors, cos / scale, -sin / scale)
