"""Attention of half precision models, against float64: no less exact than torch's own kernel, and finite as it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.engine.attention import joint_attention

HEADS, GROUP, PREFIX, SUFFIX, SIZE = 2, 3, 600, 9, 64


def inputs(dtype: torch.dtype, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Queries ``[1, Hq, 1, d]`` of the newest token; keys and values ``[H, T + S, d]``."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    queries = draw(1, HEADS * GROUP, 1, SIZE) * scale
    return (
        queries.to(dtype),
        (draw(HEADS, PREFIX + SUFFIX, SIZE) * scale).to(dtype),
        draw(HEADS, PREFIX + SUFFIX, SIZE).to(dtype),
    )


def ours(queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    parts = [keys[:, :PREFIX], values[:, :PREFIX], None, keys[None, :, PREFIX:], values[None, :, PREFIX:], None]
    return joint_attention(queries, scaling, *parts, SUFFIX - 1, None, None)  # type: ignore[arg-type]


def sdpa(queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    return scaled_dot_product_attention(queries, keys[None], values[None], scale=scaling, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_less_exact_than_the_models_own_kernel(dtype: torch.dtype) -> None:
    given = inputs(dtype, 1.5)
    right = sdpa(*(one.double() for one in given), SIZE**-0.5)
    errors = [float((made(*given, SIZE**-0.5).double() - right).abs().max()) for made in (ours, sdpa)]
    assert ours(*given, SIZE**-0.5).dtype == dtype
    assert errors[0] <= 1.5 * errors[1]


def test_logits_beyond_float16_are_attended_to() -> None:
    queries, keys, values = inputs(torch.float16, 60.0)
    logits = (queries.float()[0, :GROUP, 0] @ keys[0].float().T) * 1.0
    assert logits.abs().max() > 65_504, "a logit that float16 cannot hold"
    found = ours(queries, keys, values, 1.0)
    assert torch.isfinite(found).all()
    right = sdpa(queries.double(), keys.double(), values.double(), 1.0)
    torch.testing.assert_close(found.double(), right, atol=2e-3, rtol=0)


def test_even_attention_over_a_long_prefix_does_not_overflow() -> None:
    """70,000 equal weights: summed before they are normalised, values of 1 would be more than float16 has numbers."""
    keys = torch.zeros(1, 70_000, 8, dtype=torch.float16)
    values = torch.ones(1, 70_000, 8, dtype=torch.float16)
    queries, none = torch.zeros(1, 1, 1, 8, dtype=torch.float16), None
    newest = torch.zeros(1, 1, 1, 8, dtype=torch.float16)
    found = joint_attention(queries, 1.0, keys, values, none, newest, newest + 1, none, 0, None, None)
    torch.testing.assert_close(found, torch.ones_like(found), atol=2e-3, rtol=0)
