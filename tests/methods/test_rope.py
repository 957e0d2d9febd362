"""Rotation and its inverse against the model's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as whole
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as partial

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from methods.rope import rotate, turn_half, unrotate
from tests.methods.scoring import observations, unturned_queries
from tests.tiny import some_ids, tiny

TOKENS = 30
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with yarn": ("llama", {"rope_parameters": YARN}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", {}),
    "phi3": ("phi3", {}),
    "phi3 that turns half": (
        "phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}},
    ),
    "gemma3": ("gemma3", {}),
}


def model(name: str) -> LanguageModel:
    family, changes = MODELS[name]
    return tiny(family, **changes)


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


def test_a_quarter_turn_takes_the_first_half_to_the_second() -> None:
    assert turn_half(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [-3.0, -4.0, 1.0, 2.0]


@pytest.mark.parametrize(("turning", "own"), [(10, whole), (6, partial), (10, partial)])
def test_rotate_is_what_the_models_do(turning: int, own: Any) -> None:
    given = vectors(3, TOKENS, 10)
    cos, sin = angles(TOKENS, turning, 1.2)
    expected, _ = own(given.unsqueeze(0), given.unsqueeze(0), cos.unsqueeze(0), sin.unsqueeze(0))
    torch.testing.assert_close(rotate(given, cos, sin), expected[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_queries_turned_back_are_those_before_rope(name: str) -> None:
    lm = model(name)
    shown = observations(lm, Context(some_ids(TOKENS)))
    assert len(shown) == lm.info.layers
    for seen in shown:
        cos, sin = seen.rotation(seen.positions)
        before = unturned_queries(lm, seen)
        torch.testing.assert_close(unrotate(seen.queries, cos, sin), before, rtol=0, atol=1e-5)
        torch.testing.assert_close(rotate(before, cos, sin), seen.queries, rtol=0, atol=1e-5)


def test_only_part_of_the_head_turns_where_the_model_says_so() -> None:
    cos, sin = model("phi3 that turns half").rotation(0, torch.arange(5))
    assert cos.shape == sin.shape == (5, 4)
    assert model("phi3").rotation(0, torch.arange(5))[0].shape == (5, 8)


@pytest.mark.parametrize(("name", "scaled"), [("llama", False), ("llama with yarn", True)])
def test_rotation_has_the_models_attention_scaling(name: str, scaled: bool) -> None:
    lm = model(name)
    cos, sin = lm.rotation(0, torch.tensor([0, 7, 400]))
    factor = float(lm.decoder.rotary_emb.attention_scaling)
    assert (factor > 1) == scaled
    torch.testing.assert_close(cos.square() + sin.square(), torch.full_like(cos, factor**2), rtol=1e-5, atol=0)


def test_layers_of_different_kinds_have_angles_of_their_own() -> None:
    lm = model("gemma3")
    sliding, full, *_ = (lm.rotation(layer, torch.arange(1, 9))[0] for layer in range(4))
    assert not torch.allclose(sliding, full)
    assert torch.equal(lm.rotation(3, torch.arange(1, 9))[0], full)
