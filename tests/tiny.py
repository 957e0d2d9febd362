"""Tiny random-weight models, and second implementations that share no code with the engines' attention.

``Plain`` runs a model over caches whose pairs are really gone. ``unpatched_logits`` runs the unpatched model of any
family with an attention mask of its own for each layer and head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    DynamicCache,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

from harness.conformance import models
from harness.conformance.fixtures import some_ids as some_ids
from harness.conformance.models import VOCABULARY as VOCABULARY
from harness.conformance.reference_cache import GatheredRun, HeadCache
from harness.conformance.reference_cache import Seen as Seen
from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import Prefix, Scored
from harness.engine.masked_decode import MaskedRun

#: that of ``check-method``, for contexts of a few hundred tokens
SHAPE: dict[str, Any] = {**models.SHAPE, "max_position_embeddings": 512}
Past = list[list[tuple[Tensor, Tensor]]]
#: family -> configuration class, what it adds to SHAPE
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {}),
    "qwen2_sliding": (Qwen2Config, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    "qwen3": (Qwen3Config, {}),
    "mistral": (MistralConfig, {"sliding_window": None}),
    "mistral_sliding": (MistralConfig, {"sliding_window": 8}),
    "phi3": (Phi3Config, {"hidden_size": 72}),
    "phi3_sliding": (Phi3Config, {"hidden_size": 72, "sliding_window": 8}),
    "gemma3": (Gemma3TextConfig, models.SLIDING),
}
#: prunable layers of each
PRUNABLE: dict[str, list[int]] = {
    **{family: [0, 1, 2] for family in ("llama", "qwen2", "qwen3", "mistral", "phi3")},
    **{"qwen2_sliding": [0, 1], "mistral_sliding": [], "phi3_sliding": [], "gemma3": [1, 3]},
}
#: a context, longer than the windows, and what is fed after it, chunk by chunk
CONTEXT = some_ids(45)
FED = (some_ids(11, seed=1), (3,), (14, 15), (60,))
ALL_FED = tuple(token for chunk in FED for token in chunk)


def tiny(family: str = "llama", dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> LanguageModel:
    """The random model of ``check-method``, of any family."""
    config_class, own = MODELS[family]
    return models.build(config_class(**{**SHAPE, **own, **changes}), f"tiny-{family}", dtype, seed)


def some_masks(variants: int, layers: int, heads: int, cached: int, seed: int = 0) -> Tensor:
    """Random keep masks ``[V, L, H, T]``, each variant and head with a share of its own."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(variants, layers, heads, 1, generator=generator)
    return torch.rand(variants, layers, heads, cached, generator=generator) < shares


def everything(variants: int = 1, cached: int = len(CONTEXT), layers: int = 3) -> Tensor:
    """Masks that keep all pairs."""
    return torch.ones(variants, layers, 3, cached, dtype=torch.bool)


def close(one: Tensor, other: Tensor, atol: float = 1e-9) -> None:
    """Two tensors lie no further apart than ``atol``, whatever their size."""
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


def hook_count(model: nn.Module) -> int:
    """Hooks of every kind on every module of a model."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def batch(lm: LanguageModel, scored: Scored | Prefix, keep: Tensor, **more: Any) -> Batch:
    """The variants with these masks; ``more`` as :class:`Batch` has it."""
    return Batch(lm, scored if isinstance(scored, Scored) else Scored(scored), keep, **more)


@torch.inference_mode()
def engine_logprobs(
    lm: LanguageModel, scored: Scored | Prefix, keep: Tensor, fed: Sequence[Sequence[int]], **more: Any
) -> Tensor:
    """Log-probabilities ``[V, n, vocabulary]`` after each token fed to the masked engine, by chunks of tokens."""
    run = MaskedRun(batch(lm, scored, keep, **more), sum(map(len, fed)))
    with run.engaged():
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

    with own_masks(lm.model, mask_of):
        return lm.model(torch.tensor([ids]), use_cache=False).logits[0, cached:]


@contextmanager
def own_masks(model: Any, mask_of: Any) -> Iterator[None]:
    """Give each attention module of a model the mask that ``mask_of(layer, window)`` makes."""
    handles = []
    for layer in model.get_decoder().layers:
        module = layer.self_attn

        def swap(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            window = getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))
            return args, {**kwargs, "attention_mask": mask_of(module.layer_idx, window)}

        handles.append(module.register_forward_pre_hook(swap, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Plain:
    """A model over one sequence and caches whose pairs are really gone, which shows what each layer saw.

    ``past[layer][head]`` are the keys and values of a KV head, as many as it has kept; of models without windows only.
    """

    def __init__(self, model: Any) -> None:
        self.lm = LanguageModel(model, "plain")

    @torch.inference_mode()
    def forward(self, ids: Sequence[int], first: int = 0, past: Past | None = None) -> tuple[Tensor, list[Seen]]:
        """Last hidden states ``[n, D]`` of ids at positions ``first, ...`` and what each layer saw."""
        run = self.run(first, past)
        return run.forward(ids)[0], [seen for (seen,) in run.seen]

    def run(self, first: int = 0, past: Past | None = None) -> GatheredRun:
        none = torch.empty(0, self.lm.info.head_size, dtype=self.lm.dtype)
        past = past or [[(none, none)] * self.lm.info.kv_heads for _ in self.lm.attention]
        caches = [[[HeadCache(k, v, torch.zeros(len(k), dtype=torch.long)) for k, v in heads]] for heads in past]
        return GatheredRun(self.lm, caches, first)

    def gathered(self, seen: list[Seen], keep: Tensor) -> Past:
        """The cache of ``seen`` with only the pairs that ``keep [L, H, T]`` keeps, to be used as ``past``."""
        return [
            [(keys[mask], values[mask]) for keys, values, mask in zip(layer.keys, layer.values, masks, strict=True)]
            for layer, masks in zip(seen, keep, strict=True)
        ]

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int], first: int, past: Past) -> Tensor:
        return self.lm.logits(self.forward(ids, first, past)[0]).log_softmax(dim=-1)
