"""Rotation and its inverse against the model's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as whole
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as partial

from harness.engine.context import Context
from methods.rope import rotate, unrotate
from tests.methods.scoring import observations, unturned_queries
from tests.tiny import some_ids, tiny

TOKENS = 30
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128}
HALF = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in ("llama", "qwen2", "qwen3", "mistral", "phi3", "gemma3")},
    "llama with yarn": ("llama", {"rope_parameters": YARN}),
    "phi3 that turns half": ("phi3", {"rope_parameters": HALF}),
}


def vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def angles(tokens: int, turning: int, scaling: float = 1.0) -> tuple[Tensor, Tensor]:
    half = torch.arange(tokens).unsqueeze(1) * torch.logspace(0, -3, turning // 2, dtype=torch.float64)
    both = torch.cat([half, half], dim=-1)
    return both.cos() * scaling, both.sin() * scaling


@pytest.mark.parametrize("scaling", [1.0, 1.3])
@pytest.mark.parametrize("turning", [2, 6, 10])
def test_unrotate_inverts_rotate(turning: int, scaling: float) -> None:
    given = vectors(3, TOKENS, 10)
    cos, sin = angles(TOKENS, turning, scaling)
    turned = rotate(given, cos, sin)
    torch.testing.assert_close(unrotate(turned, cos, sin), given, rtol=0, atol=1e-12)
    torch.testing.assert_close(rotate(unrotate(given, cos, sin), cos, sin), given, rtol=0, atol=1e-12)
    assert torch.equal(turned[..., turning:], given[..., turning:])
    lengths = turned[..., :turning].norm(dim=-1)
    torch.testing.assert_close(lengths, given[..., :turning].norm(dim=-1) * scaling, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("turning", "own"), [(10, whole), (6, partial), (10, partial)])
def test_rotate_is_what_the_models_do(turning: int, own: Any) -> None:
    given = vectors(3, TOKENS, 10)
    cos, sin = angles(TOKENS, turning, 1.2)
    expected, _ = own(given.unsqueeze(0), given.unsqueeze(0), cos.unsqueeze(0), sin.unsqueeze(0))
    torch.testing.assert_close(rotate(given, cos, sin), expected[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_queries_turned_back_are_those_before_rope(name: str) -> None:
    family, changes = MODELS[name]
    lm = tiny(family, **changes)
    shown = observations(lm, Context(some_ids(TOKENS)))
    assert len(shown) == lm.info.layers
    for seen in shown:
        cos, sin = seen.rotation(seen.positions)
        before = unturned_queries(lm, seen)
        torch.testing.assert_close(unrotate(seen.queries, cos, sin), before, rtol=0, atol=1e-5)
        torch.testing.assert_close(rotate(before, cos, sin), seen.queries, rtol=0, atol=1e-5)
    cos, sin = lm.rotation(0, torch.tensor([0, 7, 400]))
    assert cos.shape == sin.shape == (3, 4 if "half" in name else 8)  # a part of the head, where the model says so
    if family == "gemma3":  # a sliding layer, then a full one
        assert not torch.allclose(cos, lm.rotation(1, torch.tensor([0, 7, 400]))[0])
    else:
        factor = float(lm.decoder.rotary_emb.attention_scaling)
        assert (factor > 1) == ("yarn" in name)
        torch.testing.assert_close(cos.square() + sin.square(), torch.full_like(cos, factor**2), rtol=1e-5, atol=0)
