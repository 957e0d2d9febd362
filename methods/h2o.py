"""H2O: pairs that have gathered most attention so far, and the newest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Method, Observation, Protection, Step
from methods.observed_attention import column_sums
from methods.registry import register


@register
@dataclass(frozen=True)
class H2O(Method):
    """Half of the pairs kept are the newest, the other half those with the largest sum of attention weights received,
    over all queries so far. Zhang et al., "H2O", arXiv 2306.14048, section 4, algorithm 1.

    The sum continues while decoding, and an evicted pair never returns. The sum, unlike a mean, favours old pairs;
    :mod:`methods.observed_attention` is the mean. The paper has one KV head a query head; with grouped heads the sums
    of a group are added. An odd number kept gives the extra pair to the newest.
    """

    name: ClassVar[str] = "h2o"
    summary: ClassVar[str] = "half newest, half largest sum of attention received"
    paper: ClassVar[str] = "arXiv 2306.14048"
    cost: ClassVar[str] = "all attention weights once more"
    needs: ClassVar[frozenset[str]] = frozenset({"queries", "weights"})
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")
    budgets: ClassVar[tuple[str, ...]] = ("head", "layer", "global")
    refused: ClassVar[dict[str, str]] = {
        "threshold": "its recent half is a share of the number kept, and a threshold sets no number"
    }

    def mechanism_for(self, kept: int) -> Protection:
        return Protection(window=kept - kept // 2)

    def score(self, seen: Observation) -> Tensor:
        return column_sums(seen).view(-1, seen.group, seen.cached).sum(dim=1)

    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        received = step.weight_sums.unflatten(1, (-1, step.group)).sum(dim=2)
        grown = torch.nn.functional.pad(scores, (0, step.new))
        return grown + received
