"""TOVA: what the newest token looks at, the same for all heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Method, Observation, Protection, Step
from methods.kvpress import Kvpress, TOVAPress
from methods.registry import register
from methods.snapkv import window_weights


@register
@dataclass(frozen=True)
class TOVA(Method):
    """s = attention weight of the newest token, mean over all query heads of the layer, so that every head of a layer
    keeps the same tokens. Oren et al., "Transformers are Multi-State RNNs", arXiv 2401.06104, section 4.

    keep_newest   the newest token itself always stays, as in kvpress; false: only if its weight is among the largest,
                  as in the paper
    """

    keep_newest: bool = True

    name: ClassVar[str] = "tova"
    summary: ClassVar[str] = "attention of the newest token, the same in all heads of a layer"
    paper: ClassVar[str] = "arXiv 2401.06104"
    cost: ClassVar[str] = "attention weights of one query"
    needs: ClassVar[frozenset[str]] = frozenset({"queries", "weights"})
    budgets: ClassVar[tuple[str, ...]] = ("head", "global", "threshold")
    refused: ClassVar[dict[str, str]] = {"layer": "all heads of a layer have the same scores: it would be head again"}
    kvpress: ClassVar[Kvpress] = TOVAPress(("head", "threshold"))
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")

    def mechanism_for(self, kept: int) -> Protection:
        return Protection(window=1 if self.keep_newest else 0)

    def score(self, seen: Observation) -> Tensor:
        before = window_weights(seen, 1)
        own = (1 - before.sum(dim=-1, keepdim=True)).clamp(min=0)
        weights = torch.cat([before, own], dim=-1).mean(dim=0)
        return weights.expand(seen.keys.shape[0], -1)

    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        return step.last_weights.mean(dim=1, keepdim=True).expand(-1, scores.shape[1], -1)
