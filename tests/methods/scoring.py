"""From a context to scores and masks, as a run gets them, and what a method is shown on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
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


@dataclass(frozen=True)
class Recorder(Method):
    """Remembers what it is shown."""

    shown: list[Observation] = field(default_factory=list, compare=False)

    def score(self, seen: Observation) -> Tensor:
        self.shown.append(seen)
        return torch.zeros(seen.keys.shape[:2])


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
