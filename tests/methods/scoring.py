"""From a context to scores and masks, as a run gets them, and what a method is shown on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.conformance.fixtures import Recorder
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.prefill import prefill
from harness.evaluation.keep_masks import Masks, masks
from methods.base import Method, Observation


def scores_of(lm: LanguageModel, method: Method, given: Context, **more: int) -> Tensor:
    """Scores ``[L, H, T]``; a method that failed says why."""
    scored = prefill(lm, given, [method], **more)
    assert scored.failed == {}
    return scored.scores[method]


def masks_of(lm: LanguageModel, given: Context, *methods: str, **grid: Any) -> tuple[Masks, dict[str, Tensor]]:
    """Masks of the variants of a grid, the control first, and the scores by method name."""
    planned = plan(RunConfig(method=methods, **grid), lm.info)
    scored = prefill(lm, given, planned.methods)
    assert scored.failed == {}
    shape = (lm.info.layers, lm.info.kv_heads, len(given.ids))
    return masks(planned.planned, scored, shape, given.prefix), {m.name: s for m, s in scored.scores.items()}


def observations(lm: LanguageModel, given: Context) -> list[Observation]:
    """What each prunable layer shows of a context."""
    recorder = Recorder()
    scores_of(lm, recorder, given)
    return recorder.shown


def unturned_queries(lm: LanguageModel, seen: Observation) -> Tensor:
    """Queries ``[Hq, n, d]`` before RoPE by the model's own projection and norm."""
    module: Any = lm.attention[lm.prunable[seen.layer]]
    heads, size = lm.info.query_heads, lm.info.head_size
    with torch.inference_mode():
        flat = module.q_proj(seen.hidden) if hasattr(module, "q_proj") else module.qkv_proj(seen.hidden)
        queries = flat[:, : heads * size].view(-1, heads, size)
        return (module.q_norm(queries) if hasattr(module, "q_norm") else queries).transpose(0, 1)


@torch.inference_mode()
def reconstruction(
    lm: LanguageModel, ids: Sequence[int], new: Sequence[int], columns: slice | None = None, first: int = 0
) -> dict[str, Tensor]:
    """``kvzip`` and ``kvzip_plus`` (before the logarithm) of cached columns ``[L, H, m]`` in float64, from the
    attention matrices of the unpatched model of any family in eager mode over ids and new tokens (9 / 3 heads).

    The softmax runs over the first ``first`` pairs, the columns (by default all) and the new tokens up to the query.
    """
    hidden: dict[int, Tensor] = {}
    values: dict[int, Tensor] = {}
    handles = []
    for layer in lm.prunable:
        module: Any = lm.attention[layer]

        def read(module: Any, args: Any, kwargs: Any, layer: int = layer) -> None:
            hidden[layer] = (args[0] if args else kwargs["hidden_states"])[0].double()

        def take(module: Any, args: Any, out: Tensor, layer: int = layer) -> None:
            values[layer] = out[0].view(len(out[0]), 3, -1).transpose(0, 1).double()

        handles.append(module.register_forward_pre_hook(read, with_kwargs=True))
        handles.append(module.v_proj.register_forward_hook(take))
    lm.model.set_attn_implementation("eager")
    try:
        out = lm.model(torch.tensor([[*ids, *new]]), use_cache=False, output_attentions=True)
    finally:
        lm.model.set_attn_implementation("sdpa")
        for handle in handles:
            handle.remove()
    found: dict[str, list[Tensor]] = {"kvzip": [], "kvzip_plus": []}
    cached, places = len(ids), columns or slice(0, len(ids))
    count = places.stop - places.start
    for layer in lm.prunable:
        weights = out.attentions[layer][0, :, cached:].double()  # [Hq, n, T + n]
        seen = weights[..., [*range(first), *range(places.start, places.stop), *range(cached, weights.shape[-1])]]
        weights = weights[..., places] / seen.sum(dim=-1, keepdim=True)
        projection = lm.attention[layer].o_proj.weight.double()
        parts = projection.split(projection.shape[1] // 9, dim=1)
        added = torch.stack([(values[layer][q // 3, places] @ part.T).norm(dim=-1) for q, part in enumerate(parts)])
        norms = hidden[layer][cached:].norm(dim=-1)
        plus = weights * added.unsqueeze(1) / norms.view(1, -1, 1)
        for name, peaks in (("kvzip", weights), ("kvzip_plus", plus)):
            found[name].append(peaks.amax(dim=1).view(3, 3, count).amax(dim=1))
    return {name: torch.stack(layers) for name, layers in found.items()}
