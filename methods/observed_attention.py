"""Observed attention: the mean weight a pair gets from the queries that can see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.attention import weight_blocks
from methods.base import Method, Observation
from methods.kvpress import Kvpress
from methods.registry import register


@register
@dataclass(frozen=True)
class ObservedAttention(Method):
    """s_t = mean over the group's query heads of (sum of the weights on t) / (T - t).

    What NVIDIA/kvpress offers under this name, often called H2O; it has neither H2O's recent half nor its running sums
    (:mod:`methods.h2o`). Dividing by the number of queries that can see a pair favours the newest ones.
    """

    name: ClassVar[str] = "observed_attention"
    summary: ClassVar[str] = "mean attention weight from the queries that can see the pair"
    paper: ClassVar[str] = "arXiv 2306.14048 (idea)"
    cost: ClassVar[str] = "all attention weights once more"
    needs: ClassVar[frozenset[str]] = frozenset({"queries"})
    kvpress: ClassVar[Kvpress] = Kvpress(("head",))  # its AdaKVPress and DMSPress have no attention weights to give

    def score(self, seen: Observation) -> Tensor:
        watchers = torch.arange(seen.cached, 0, -1, device=seen.keys.device)
        return column_sums(seen).view(-1, seen.group, seen.cached).mean(dim=1) / watchers


def column_sums(seen: Observation) -> Tensor:
    """Sum of the weights that each column gets from all queries of the prefill, per query head, float32 ``[Hq, T]``.

    Summed in blocks of queries; computed once for all methods that read it.
    """

    def make() -> Tensor:
        sums = torch.zeros(seen.queries.shape[0], seen.cached, device=seen.keys.device)
        for _, weights in weight_blocks(seen.queries, seen.keys, seen.scaling, seen.block_bytes):
            sums[:, : weights.shape[-1]] += weights.sum(dim=1)
        return sums

    return seen.shared("column sums", make)
