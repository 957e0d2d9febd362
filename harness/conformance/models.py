"""Small models with random weights for the checks; nothing is downloaded but, for ``like``, a configuration."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig
from transformers.initialization import no_init_weights

from harness.engine.adapter import LanguageModel, describe
from harness.errors import HarnessError
from harness.models import loading
from harness.models.known_models import EMBEDDED, SHAPES
from methods.base import ModelInfo

VOCABULARY = 97
#: 9 query heads over 3 KV heads; a hidden width that is not Hq x d, so that the two cannot be mixed up
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 54,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
#: two of four layers have a sliding window, which leaves L = 2 layers to prune
SLIDING: dict[str, Any] = {
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "query_pre_attn_scalar": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}
#: parameters up to which a model is also made in float64
MOST_IN_DOUBLE = 200_000_000


def tiny() -> Any:
    """The configuration of a small Llama."""
    return LlamaConfig(**SHAPE)


def tiny_sliding() -> Any:
    """The configuration of a small Gemma 3, whose layers take turns at a sliding window."""
    return Gemma3TextConfig(**{**SHAPE, **SLIDING})


def like(name: str) -> Any:
    """A model's own shape (layers, heads, widths, positions) with a small vocabulary and small MLPs. For an embedded
    model it is known here; of any other the configuration is read, from the hub or a folder."""
    small = {"vocab_size": VOCABULARY, "intermediate_size": 40}
    if name in EMBEDDED:
        shape = next(shape for shape in SHAPES if shape.name == name)
        own = {
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.query_heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_size,
        }
        return LlamaConfig(**{**SHAPE, **small, **own})
    config = copy.deepcopy(loading.config_of(name).get_text_config())
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    for key, value in {**small, **ends, "tie_word_embeddings": False}.items():
        setattr(config, key, value)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    if describe(config, name).layers == 0:
        raise HarnessError(
            f"every layer of model {name!r} has a sliding window, so nothing can be pruned; give another"
        )
    return config


def info(config: Any, name: str) -> ModelInfo:
    return describe(config, name)


def build(config: Any, name: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> LanguageModel:
    """A model with weights drawn in float32 and cast, so that every dtype has the same ones; large enough that
    attention is uneven and greedy answers vary."""
    with no_init_weights():  # they are drawn here
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=dtype, attn_implementation="sdpa")
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    ones = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma adds one to the weight of a norm itself
    with torch.no_grad():
        for label, weight in model.named_parameters():
            draw = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:  # norms and biases
                draw = draw * 0.3 + (0.0 if "bias" in label else ones)
            elif "embed" not in label:
                draw = draw * 1.7 / math.sqrt(weight.shape[1])
            weight.copy_(draw)
        if dtype == torch.float64:
            _exact_norms(model, 1.0 - ones)
    return LanguageModel(model, name)


def _exact_norms(model: Any, offset: float) -> None:
    """Norms that compute in float64. transformers' go through float32 in a model of any dtype, where two numbers that
    differ in their last digit may be rounded apart; 30 layers make that visible. ``offset`` is what a norm adds to its
    weight."""
    for module in [*model.modules()]:
        for label, child in [*module.named_children()]:
            if type(child).__name__.endswith("RMSNorm"):
                eps = child.eps if hasattr(child, "eps") else child.variance_epsilon
                norm = nn.RMSNorm(child.weight.shape, eps=eps)
                norm.weight = nn.Parameter(child.weight + offset, requires_grad=False)
                setattr(module, label, norm)


def parameters(config: Any) -> int:
    """About how many parameters a model of this configuration has."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in AutoModelForCausalLM.from_config(copy.deepcopy(config)).parameters())
