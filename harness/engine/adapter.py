"""The one place that knows how a transformers model is built inside.

The engines never use a transformers cache. They run the decoder without one and register an attention function of
their own, which gets the new queries, keys and values (after QK-norm and RoPE) and a *run*, the object that owns
everything cached. Needs transformers 5: extra keyword arguments of the model's forward reach the attention function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from methods.base import ModelInfo

KERNEL = "kvprune"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma3", "gemma3_text")


#: where a model's positions come from, for who has a longer one
POSITIONS_FROM = "max_position_embeddings and the factor of rope_parameters in its config.json"


class EngineError(RuntimeError):
    """A model or a run that the engines cannot serve, with the reason."""

    #: printed without a traceback (:func:`harness.errors.is_users_mistake`)
    users_mistake = True


class Run(Protocol):
    """What owns the cache during a forward."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        """Attention of one layer (counted over all layers): queries ``[B, Hq, n, d]``, new keys and values
        ``[B, H, n, d]`` -> ``[B, Hq, n, d]``."""
        ...


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    kvprune_run: Run | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The registered attention function. Masks are the run's matter; ``attention_mask`` is always None."""
    if kvprune_run is None:
        raise EngineError("the kvprune attention function was called outside an engine run")
    if softcap is not None or s_aux is not None:
        raise EngineError("attention with soft-capping or learned sinks is not supported by the engines")
    layer: int = module.layer_idx  # type: ignore[assignment]
    return kvprune_run.attend(layer, query, key, value, scaling).transpose(1, 2), None


def _no_mask(*_: Any, **__: Any) -> None:
    return None


class LanguageModel:
    """A loaded decoder-only model as the engines see it.

    layers     all attention layers; ``windows[i]`` is the sliding window of layer i, None for global attention
    prunable   layers without a sliding window; the only ones that are scored, pruned and counted (L of them)
    """

    def __init__(self, model: Any, name: str) -> None:
        self.model = model.eval()
        self.name = name
        self.decoder: Any = model.get_decoder()
        self.config: Any = self.decoder.config
        family = self.config.model_type
        if family not in FAMILIES:
            raise EngineError(
                f"model {name!r} is of the family {family!r}; supported: {', '.join(FAMILIES)}. "
                "Add a family to harness/engine/adapter.py with a test against the unpatched model"
            )
        if getattr(self.config, "attn_logit_softcapping", None):
            raise EngineError(f"model {name!r} soft-caps its attention, which the engines do not support")
        if getattr(self.config, "use_bidirectional_attention", None):
            raise EngineError(f"model {name!r} attends in both directions, which the engines do not support")
        rope = getattr(self.config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "dynamic":
            raise EngineError(f"model {name!r} has dynamic RoPE scaling, whose keys depend on what ran before")
        self.attention: list[nn.Module] = [layer.self_attn for layer in self.decoder.layers]
        self.windows = [_window(self.config, index) for index in range(len(self.attention))]
        self.prunable = [index for index, window in enumerate(self.windows) if window is None]
        self.place = {layer: place for place, layer in enumerate(self.prunable)}
        self.info = describe(self.config, name)

    @property
    def device(self) -> torch.device:
        return self.decoder.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.decoder.get_input_embeddings().weight.dtype

    @property
    def max_positions(self) -> int:
        return max_positions(self.config)

    def obstacle(self, cached: int, needed: int) -> str | None:
        """Why a cache of ``cached`` tokens cannot be continued to ``needed`` positions; None where it can."""
        if needed > self.max_positions:
            return f"needs {needed} positions, the model has {self.max_positions}"
        rope = getattr(self.config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            border = rope.get("original_max_position_embeddings") or self.config.original_max_position_embeddings
            if cached <= border < needed:
                return f"crosses position {border}, where the model's RoPE leaves the angles that the cached keys have"
        return None

    def output_projection(self, layer: int) -> Tensor:
        """W_O of a layer as ``[Hq, D, d]``, whole even where the weights are offloaded."""
        module: Any = self.attention[layer].o_proj
        weight = module.weight
        if weight.is_meta:  # accelerate keeps offloaded weights behind its hook
            weight = module._hf_hook.weights_map["weight"].to(self.device)
        heads = self.info.query_heads
        return weight.detach().view(weight.shape[0], heads, -1).transpose(0, 1)

    def rotation(self, layer: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """RoPE's cos and sin for ``positions [m]``, ``[m, r]`` float32, as the model applies them in a layer."""
        like = torch.empty(1, device=self.device, dtype=torch.float32)
        kinds = getattr(self.decoder.rotary_emb, "layer_types", None)
        extra = (self.config.layer_types[layer],) if kinds else ()
        cos, sin = self.decoder.rotary_emb(like, positions.unsqueeze(0), *extra)
        return cos[0], sin[0]

    @contextmanager
    def engaged(self, counted: bool = False) -> Iterator[None]:
        """The model with our attention function in place; its own one is back afterwards, whatever happens. Writes to
        tensors are ``counted`` at the price of a percent or two of the time."""
        AttentionInterface.register(KERNEL, _attention)
        AttentionMaskInterface.register(KERNEL, _no_mask)
        config = self.config
        before = config._attn_implementation
        config._attn_implementation_internal = KERNEL
        try:
            with torch.no_grad() if counted else torch.inference_mode():
                yield
        finally:
            config._attn_implementation_internal = before

    def forward(self, ids: Tensor, first_position: int, run: Run) -> Tensor:
        """Last hidden states ``[B, n, D]`` of token ids ``[B, n]`` at positions ``first_position, + 1, ...``."""
        positions = torch.arange(first_position, first_position + ids.shape[1], device=ids.device).unsqueeze(0)
        out = self.decoder(input_ids=ids, position_ids=positions, use_cache=False, kvprune_run=run)
        return out.last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[..., vocabulary]`` of hidden states ``[..., D]``, with the model's final soft-capping if any."""
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        cap = getattr(self.config, "final_logit_softcapping", None)
        return torch.tanh(logits / cap) * cap if cap else logits


def max_positions(config: Any) -> int:
    """Positions of a model by its configuration: ``max_position_embeddings``, or what YaRN stretches the original
    length to where that is more, since configurations differ in which of the two they state."""
    config = config.get_text_config()
    stated = int(config.max_position_embeddings)
    rope = _rope(config)
    if rope.get("rope_type") != "yarn":
        return stated
    original = rope.get("original_max_position_embeddings") or stated
    return max(stated, int(original * rope.get("factor", 1.0)))


def describe(config: Any, name: str) -> ModelInfo:
    """The shape of a model from its (text) configuration alone, before any weight is loaded."""
    config = config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    prunable = [i for i in range(config.num_hidden_layers) if _window(config, i) is None]
    return ModelInfo(
        name=name,
        layers=len(prunable),
        query_heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=size,
        hidden_size=config.hidden_size,
        rope_scaling=_rope_scaling(config),
    )


def _rope_scaling(config: Any) -> str:
    """transformers' ``rope_type`` of the prunable layers."""
    return str(_rope(config).get("rope_type") or "default")


def _rope(config: Any) -> dict[str, Any]:
    """The RoPE parameters of the prunable layers; Gemma3 has some for each kind of layer."""
    rope = getattr(config, "rope_parameters", None) or {}
    return dict(rope.get("full_attention") or rope)


def _window(config: Any, layer: int) -> int | None:
    """The sliding window of a layer in tokens, itself included; None where the layer sees the whole past, which it does
    too where the window is no shorter than the model's positions (Phi-4-mini)."""
    window: int | None = getattr(config, "sliding_window", None)
    if window is not None and window >= max_positions(config):
        return None
    if config.model_type in ("mistral", "phi3"):  # all layers or none, whatever else the configuration says
        return window
    kinds = getattr(config, "layer_types", None)
    return window if kinds and kinds[layer] == "sliding_attention" else None
