"""Tiny random-weight models, and second implementations that share no code with the engines.

``Plain`` is a Llama written out by hand, head by head, over caches whose pairs are really gone.
``unpatched_logits`` runs the unpatched model of any family with an attention mask of its own for each layer and head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    DynamicCache,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from harness.conformance import models
from harness.conformance.models import VOCABULARY
from harness.engine.adapter import LanguageModel
from harness.engine.context import Prefix
from harness.engine.masked_decode import MaskedRun

#: that of ``check-method``, for contexts of a few hundred tokens
SHAPE: dict[str, Any] = {**models.SHAPE, "max_position_embeddings": 512}
#: family -> model class, configuration class, what it adds to SHAPE
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen2_sliding": (
        Qwen2ForCausalLM,
        Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "mistral_sliding": (MistralForCausalLM, MistralConfig, {"sliding_window": 8}),
    "phi3": (Phi3ForCausalLM, Phi3Config, {"hidden_size": 72}),
    "phi3_sliding": (Phi3ForCausalLM, Phi3Config, {"hidden_size": 72, "sliding_window": 8}),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, models.SLIDING),
}
#: prunable layers of each
PRUNABLE = {
    "llama": [0, 1, 2],
    "qwen2": [0, 1, 2],
    "qwen2_sliding": [0, 1],
    "qwen3": [0, 1, 2],
    "mistral": [0, 1, 2],
    "mistral_sliding": [],
    "phi3": [0, 1, 2],
    "phi3_sliding": [],
    "gemma3": [1, 3],
}


def tiny(family: str = "llama", dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> LanguageModel:
    """A model with random weights large enough that attention is uneven and greedy answers vary."""
    model_class, config_class, own = MODELS[family]
    model = model_class._from_config(config_class(**{**SHAPE, **own, **changes}), attn_implementation="sdpa")
    model = model.to(dtype).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            draw = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            if weight.dim() == 2:
                draw = draw if "embed" in name else draw * 1.7 / math.sqrt(weight.shape[1])
            else:  # norms and biases
                draw = draw * 0.3 + (0.0 if "bias" in name or family == "gemma3" else 1.0)
            weight.copy_(draw)
    return LanguageModel(model, f"tiny-{family}")


def some_ids(count: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(1000 + seed)
    return tuple(torch.randint(0, VOCABULARY, (count,), generator=generator).tolist())


def some_masks(variants: int, layers: int, heads: int, cached: int, seed: int = 0) -> Tensor:
    """Random keep masks ``[V, L, H, T]``, each variant and head with a share of its own."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(variants, layers, heads, 1, generator=generator)
    return torch.rand(variants, layers, heads, cached, generator=generator) < shares


def hook_count(model: nn.Module) -> int:
    """Hooks of every kind on every module of a model."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@torch.inference_mode()
def engine_logprobs(
    lm: LanguageModel, prefix: Prefix, keep: Tensor, fed: Sequence[Sequence[int]], **more: Any
) -> Tensor:
    """Log-probabilities ``[V, n, vocabulary]`` after each token fed to the masked engine, by chunks of tokens."""
    count = sum(map(len, fed))
    run = MaskedRun(lm, prefix, keep, count, **more)
    with lm.engaged():
        parts = [run.advance(torch.tensor([chunk]).expand(keep.shape[0], -1)) for chunk in fed]
        return lm.logits(torch.cat(parts, dim=1)).log_softmax(dim=-1)


@torch.inference_mode()
def greedy(model: Any, ids: Sequence[int], count: int) -> list[int]:
    """Greedy tokens of the unpatched model with its own cache."""
    cache = DynamicCache(config=model.config)
    fed, found = list(ids), []
    for _ in range(count):
        logits = model(torch.tensor([fed]), cache=cache, use_cache=True).logits[0, -1]
        fed = [int(logits.argmax())]
        found += fed
    return found


@torch.inference_mode()
def unpatched_logits(lm: LanguageModel, ids: Sequence[int], cached: int, keep: Tensor) -> Tensor:
    """Logits ``[n, vocabulary]`` of the unpatched model for the ids after the first ``cached``.

    One forward over all ids without a cache. Rows of the context are dense; later rows see of the context what
    ``keep [L, H, cached]`` keeps, in the prunable layers only.
    """
    total = len(ids)
    rows, columns = torch.arange(total).unsqueeze(1), torch.arange(total)
    places = {layer: place for place, layer in enumerate(PRUNABLE[lm.name.removeprefix("tiny-")])}

    def mask_of(layer: int, window: int | None) -> Tensor:
        seen = columns <= rows
        if window is not None:
            seen = seen & (columns > rows - window)
        seen = seen.expand(lm.info.query_heads, -1, -1).clone()
        if layer in places:
            seen[:, cached:, :cached] &= keep[places[layer]].repeat_interleave(lm.info.group, 0).unsqueeze(1)
        return torch.zeros(1, *seen.shape, dtype=lm.dtype).masked_fill(~seen, float("-inf"))

    with _own_masks(lm.model, mask_of):
        return lm.model(torch.tensor([ids]), use_cache=False).logits[0, cached:]


@contextmanager
def _own_masks(model: Any, mask_of: Any) -> Iterator[None]:
    """Give each attention module of a model the mask that ``mask_of(layer, window)`` makes."""
    handles = []
    for layer in model.get_decoder().layers:
        module = layer.self_attn

        def swap(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            config = module.config
            window = getattr(
                module, "sliding_window", config.sliding_window if hasattr(config, "sliding_window") else None
            )
            return args, {**kwargs, "attention_mask": mask_of(module.layer_idx, window)}

        handles.append(module.register_forward_pre_hook(swap, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class Seen:
    """What one layer of ``Plain`` computed for the new tokens."""

    hidden: Tensor  # [n, D] after the input norm
    queries: Tensor  # [Hq, n, d] rotated
    keys: list[Tensor]  # of each KV head, [C_h, d], rotated
    values: list[Tensor]  # of each KV head, [C_h, d]
    weights: list[Tensor]  # of each query head, [n, C_h]


class Plain:
    """A Llama forward in plain torch: one head at a time, each over a cache of its own length."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.config = model.config

    @torch.inference_mode()
    def forward(
        self, ids: Sequence[int], first: int = 0, past: list[list[tuple[Tensor, Tensor]]] | None = None
    ) -> tuple[Tensor, list[Seen]]:
        """Last hidden states ``[n, D]`` of ids at positions ``first, ...`` and what each layer saw.

        ``past[layer][head]`` are the keys and values of a KV head, as many as it has kept.
        """
        config = self.config
        group = config.num_attention_heads // config.num_key_value_heads
        stream = self.model.model.embed_tokens.weight[torch.tensor(ids)]
        seen = []
        for index, layer in enumerate(self.model.model.layers):
            module = layer.self_attn
            hidden = self._norm(stream, layer.input_layernorm.weight)
            queries = self._heads(hidden @ module.q_proj.weight.T, first)
            keys = self._heads(hidden @ module.k_proj.weight.T, first)
            values = (hidden @ module.v_proj.weight.T).view(len(ids), -1, config.head_dim).transpose(0, 1)
            all_keys, all_values = list(keys), list(values)
            if past is not None:
                all_keys = [torch.cat([past[index][h][0], keys[h]]) for h in range(len(keys))]
                all_values = [torch.cat([past[index][h][1], values[h]]) for h in range(len(keys))]
            weights = [self._weights(queries[q], all_keys[q // group]) for q in range(len(queries))]
            mixed = torch.cat([weights[q] @ all_values[q // group] for q in range(len(queries))], dim=-1)
            stream = stream + mixed @ module.o_proj.weight.T
            inner = self._norm(stream, layer.post_attention_layernorm.weight)
            gate = inner @ layer.mlp.gate_proj.weight.T
            stream = (
                stream + (gate * gate.sigmoid() * (inner @ layer.mlp.up_proj.weight.T)) @ layer.mlp.down_proj.weight.T
            )
            seen.append(Seen(hidden, queries, all_keys, all_values, weights))
        return self._norm(stream, self.model.model.norm.weight), seen

    @torch.inference_mode()
    def gathered(self, seen: list[Seen], keep: Tensor) -> list[list[tuple[Tensor, Tensor]]]:
        """The cache of ``seen`` with only the pairs that ``keep [L, H, T]`` keeps, to be used as ``past``."""
        return [
            [(keys[mask], values[mask]) for keys, values, mask in zip(layer.keys, layer.values, masks, strict=True)]
            for layer, masks in zip(seen, keep, strict=True)
        ]

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int], first: int, past: list[list[tuple[Tensor, Tensor]]]) -> Tensor:
        hidden, _ = self.forward(ids, first, past)
        return (hidden @ self.model.lm_head.weight.T).log_softmax(dim=-1)

    def _norm(self, values: Tensor, weight: Tensor) -> Tensor:
        single = values.float()  # as transformers does in a model of any dtype
        single = single * (single.pow(2).mean(dim=-1, keepdim=True) + self.config.rms_norm_eps).rsqrt()
        return single.to(values.dtype) * weight

    def _heads(self, values: Tensor, first: int) -> Tensor:
        """``[n, heads * d]`` -> ``[heads, n, d]``, rotated: component i turns with component i + d/2."""
        size = self.config.head_dim
        half = size // 2
        values = values.view(values.shape[0], -1, size).transpose(0, 1)
        rates = 1.0 / self.config.rope_parameters["rope_theta"] ** (torch.arange(half).float() * 2 / size)
        angles = torch.arange(first, first + values.shape[1]).unsqueeze(1) * rates
        left, right = values[..., :half], values[..., half:]
        cos, sin = angles.cos().to(values.dtype), angles.sin().to(values.dtype)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    def _weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Causal softmax weights ``[n, C]`` of the newest n tokens."""
        logits = queries @ keys.T / math.sqrt(self.config.head_dim)
        new, cached = logits.shape
        later = torch.arange(cached) > torch.arange(cached - new, cached).unsqueeze(1)
        return logits.masked_fill(later, float("-inf")).softmax(dim=-1)
