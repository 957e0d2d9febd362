"""SnapKV: what the last tokens of the context look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, max_pool1d

from methods.attention import weight_blocks
from methods.base import Method, MethodError, Observation, Protection
from methods.kvpress import Kvpress, SnapKVPress
from methods.registry import register

WINDOW = 64


@register
@dataclass(frozen=True)
class SnapKV(Method):
    """s = attention of the last 64 tokens on the pair: mean over their queries, pooled along the context, then mean
    over the G query heads of the KV head. Li et al., "SnapKV", arXiv 2404.14469, section 4.

    The window is the end of the context, so the method is query-agnostic here; the authors let it see the question
    (``--query-aware``). They select for each query head, and pool with a maximum in their LongBench runs
    (``--option snapkv.pool=max``). A context shorter than the window is observed by what it has.

    kernel   width of the pooling along the context, odd
    pool     mean (zeros count at both ends) or max
    """

    kernel: int = 5
    pool: str = "mean"

    name: ClassVar[str] = "snapkv"
    summary: ClassVar[str] = "attention of the context's last 64 tokens, pooled"
    paper: ClassVar[str] = "arXiv 2404.14469"
    cost: ClassVar[str] = "attention weights of 64 queries"
    needs: ClassVar[frozenset[str]] = frozenset({"queries"})
    mechanism: ClassVar[Protection] = Protection(window=WINDOW)
    kvpress: ClassVar[Kvpress] = SnapKVPress()

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.kernel % 2 == 0 or self.pool not in ("mean", "max"):
            raise MethodError(
                f"{self.name} needs an odd kernel and pool mean or max, got kernel={self.kernel}, pool={self.pool!r}"
            )

    def score(self, seen: Observation) -> Tensor:
        pool = max_pool1d if self.pool == "max" else avg_pool1d
        weights = window_weights(seen, WINDOW)
        scores = torch.zeros(seen.queries.shape[0], seen.cached, device=seen.keys.device)
        if weights.shape[-1]:  # torch pools no empty row
            smooth = pool(weights.unsqueeze(0), self.kernel, stride=1, padding=self.kernel // 2)[0]
            scores[:, : smooth.shape[-1]] = smooth
        return scores.view(-1, seen.group, seen.cached).mean(dim=1)


def window_weights(seen: Observation, window: int) -> Tensor:
    """Mean weight that the last ``window`` tokens give to each column before them, per query head, float32
    ``[Hq, T - window]``. The softmax runs over the window's own columns too."""

    def make() -> Tensor:
        rows = min(window, seen.new)
        before = seen.cached - rows
        sums = torch.zeros(seen.queries.shape[0], before, device=seen.keys.device)
        for _, weights in weight_blocks(seen.queries[:, -rows:], seen.keys, seen.scaling, seen.block_bytes):
            sums += weights[:, :, :before].sum(dim=1)
        return sums / rows

    return seen.shared(("window weights", window), make)
