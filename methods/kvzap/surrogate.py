"""The surrogate: a small network a layer that reads a token's hidden state and predicts ln KVzip+ of its pairs.

KVzap, arXiv 2601.07891, section 3.2: linear, D -> H with a bias, or an MLP, D -> D/8 -> H with exact GELU and biases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from methods.base import MethodError, ModelInfo
from methods.kvzap.targets import FEATURES, feature_size

KINDS = ("linear", "mlp")
#: the MLP's hidden width is the width it reads divided by this
NARROWER = 8


@dataclass(frozen=True)
class Shape:
    """Dimensions of a surrogate, under the names of NVIDIA's published configurations.

    input_dim   F, what a layer's network reads (D, or 2 H d for keys and values)
    output_dim  H
    hidden_dim  m of an MLP, None of a linear surrogate
    n_modules   L
    """

    input_dim: int
    output_dim: int
    hidden_dim: int | None
    n_modules: int

    @property
    def kind(self) -> str:
        return "linear" if self.hidden_dim is None else "mlp"

    def __str__(self) -> str:
        inner = "" if self.hidden_dim is None else f"{self.hidden_dim} -> "
        return f"{self.kind}, {self.n_modules} layers of {self.input_dim} -> {inner}{self.output_dim}"


def needed_shape(info: ModelInfo, kind: str, features: str = "hidden") -> Shape:
    """The shape that a surrogate for a model has by default."""
    check_choice("kind", kind, KINDS)
    check_choice("features", features, FEATURES)
    width = feature_size(features, info.hidden_size, info.kv_heads, info.head_size)
    hidden = max(1, width // NARROWER) if kind == "mlp" else None
    return Shape(width, info.kv_heads, hidden, info.layers)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """:class:`MethodError` where ``value`` is none of the choices."""
    if value not in choices:
        raise MethodError(f"{name} must be {' or '.join(choices)}, got {value!r}")


def network(shape: Shape) -> nn.Module:
    """The network of one layer."""
    if shape.hidden_dim is None:
        return nn.Linear(shape.input_dim, shape.output_dim)
    return nn.Sequential(
        nn.Linear(shape.input_dim, shape.hidden_dim),
        nn.GELU(),
        nn.Linear(shape.hidden_dim, shape.output_dim),
    )


class Surrogate(nn.Module):
    """One network for each prunable layer, float32. ``features`` names what it reads, see :mod:`methods.kvzap.targets`.

    The names of its tensors are those of NVIDIA's published weights: ``layers.{i}.weight``, or ``layers.{i}.0.weight``
    and ``layers.{i}.2.weight``, each with a ``bias``.
    """

    def __init__(self, shape: Shape, features: str = "hidden") -> None:
        super().__init__()
        self.shape = shape
        self.features = features
        self.layers = nn.ModuleList(network(shape) for _ in range(shape.n_modules))
        self.requires_grad_(False)

    @property
    def kind(self) -> str:
        return self.shape.kind

    def fingerprint(self) -> str:
        """Hash of all weights, 16 hex digits."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def scores(self, layer: int, read: Tensor) -> Tensor:
        """Predicted ln KVzip+ of n tokens, float32 ``[H, n]``, from what they show, ``[n, F]`` in any dtype."""
        module = self.layers[layer]
        if next(module.parameters()).device != read.device:
            with torch.inference_mode(False):
                self.to(read.device)
        found: Tensor = module(read.float())
        return found.T
