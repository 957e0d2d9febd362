"""Budgets: how scores become a keep mask. One rounding rule, one tie rule, one protection mask.

Ties: the later position wins, then the lower layer, then the lower head. Protected pairs count inside the number
kept and are taken first; the rest of the number kept goes to the best of the others. Where protection alone exceeds
the number kept, exactly the protected pairs stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from methods.errors import MethodError

BUDGETS = ("head", "layer", "global", "threshold")
#: AdaKV's floor: the share of a head's number kept that no other head can take (Feng et al., arXiv 2407.11550)
ADAKV_FLOOR = Fraction(1, 5)


def number_kept(cached: int, removed: Decimal) -> int:
    """Pairs kept in a head: ``max(1, floor(cached * (1 - removed)))`` in exact decimals, 0 only of 0 pairs.

    1,000 pairs at 0.9 keep 100, where binary floats would keep 99.
    """
    if not (removed.is_finite() and 0 <= removed < 1):
        raise MethodError(f"removed must be at least 0 and less than 1, got {removed}")
    return min(cached, max(1, int(cached * (1 - removed))))


@dataclass(frozen=True)
class Ranking:
    """Scores of a context and the pairs protected in it, ranked once for all budgets and levels.

    scores     float32 ``[L, H, T]``
    protected  bool ``[T]``
    """

    scores: Tensor
    protected: Tensor

    def __post_init__(self) -> None:
        if self.scores.dtype != torch.float32 or self.scores.dim() != 3:
            raise MethodError(f"scores must be float32 [L, H, T], got {self.scores.dtype} {list(self.scores.shape)}")
        if not torch.isfinite(self.scores).all():
            raise MethodError("scores must be finite; NaN has no rank and infinity is kept for protected pairs")

    @cached_property
    def _first(self) -> Tensor:
        """Scores with the protected pairs above all others, ``[L, H, T]``."""
        return self.scores.masked_fill(self.protected.to(self.scores.device), float("inf"))

    @cached_property
    def _in_head(self) -> Tensor:
        """Rank of each pair in its head, 0 = best, ``[L, H, T]``."""
        return ranks(self._first)

    @cached_property
    def _layer_order(self) -> Tensor:
        """For each layer, flat indices (t, h) -> t' * H + h over reversed positions, best first, ``[L, T * H]``."""
        return _by_time(self._first).argsort(dim=-1, descending=True, stable=True)

    @cached_property
    def _anywhere(self) -> Tensor:
        """Rank of each pair among all of all layers, ``[L, H, T]``."""
        layers, heads, cached = self.scores.shape
        flat = self._first.flip(-1).permute(2, 0, 1).reshape(-1)
        places = torch.arange(flat.numel(), device=flat.device)
        rank = torch.empty_like(places).scatter(0, flat.argsort(descending=True, stable=True), places)
        return rank.view(cached, layers, heads).permute(1, 2, 0).flip(-1)

    def head(self, kept: int | list[int]) -> Tensor:
        """The best ``kept`` pairs of each head, one number or one for each layer; bool ``[L, H, T]``."""
        numbers = [kept] * len(self.scores) if isinstance(kept, int) else kept
        if len(numbers) != len(self.scores):
            raise MethodError(f"kept_by_layer gave {len(numbers)} numbers for {len(self.scores)} layers")
        layers = [self._or_protected(n, mask) for n, mask in zip(numbers, self.best_in_heads(numbers), strict=True)]
        return torch.stack(layers) if layers else torch.ones_like(self.scores, dtype=torch.bool)

    def best_in_heads(self, numbers: list[int]) -> Tensor:
        """The first pairs of each head, one number for each layer, protected ones first but no more than that."""
        return self._in_head < torch.tensor(numbers, device=self.scores.device).view(-1, 1, 1)

    def layer(self, kept: int, floor: Fraction = ADAKV_FLOOR) -> Tensor:
        """AdaKV: the best ``H * kept`` pairs of each layer over its heads, each head being guaranteed its
        protected pairs and ``floor(floor * (kept - protected))`` more; bool ``[L, H, T]``."""
        protected = int(self.protected.sum())
        sure = protected + int(floor * max(0, kept - protected))
        return self._or_protected(kept, self.best_in_layers(self.scores.shape[1] * kept, sure))

    def best_in_layers(self, total: int, sure: int) -> Tensor:
        """The first ``total`` pairs of each layer over its heads, each head being guaranteed its first ``sure``."""
        _, heads, cached = self.scores.shape
        safe = self._in_head < min(sure, cached)
        safe_in_order = _by_time(safe).gather(-1, self._layer_order)
        others = (~safe_in_order).cumsum(-1)
        wanted = total - safe.sum(dim=(1, 2)).unsqueeze(-1)
        taken = safe_in_order | (others <= wanted)
        flat = torch.zeros_like(taken).scatter(-1, self._layer_order, taken)
        return _by_head(flat, heads, cached)

    def global_(self, kept: int) -> Tensor:
        """KVzip's non-uniform budget: the best ``L * H * kept`` pairs over all layers and heads; ``[L, H, T]``."""
        layers, heads, _ = self.scores.shape
        return self._or_protected(kept, self.best_anywhere(layers * heads * kept))

    def best_anywhere(self, total: int) -> Tensor:
        """The first ``total`` pairs of all layers and heads."""
        return self._anywhere < total

    def threshold(self, tau: float) -> Tensor:
        """Protected pairs and those with a score of at least ``tau``; bool ``[L, H, T]``.

        The result of judging each pair when it leaves the window (KVzap, arXiv 2601.07891, section 3.3), seen right
        after the prefill; while decoding the evictor continues with the same rule.
        """
        return (self.scores >= tau) | self.protected.to(self.scores.device)

    def _or_protected(self, kept: int, keep: Tensor) -> Tensor:
        protected = self.protected.to(keep.device)
        return protected.expand_as(keep).clone() if int(protected.sum()) > kept else keep


def ranks(scores: Tensor) -> Tensor:
    """Rank along the last axis, 0 = best; of equal scores the later position ranks first."""
    order = scores.flip(-1).argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(scores.shape[-1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter(-1, order, places).flip(-1)


def _by_time(values: Tensor) -> Tensor:
    """``[L, H, T]`` -> ``[L, T * H]``, latest position first, then heads: a stable sort breaks ties in this order."""
    return values.flip(-1).transpose(1, 2).flatten(1)


def _by_head(values: Tensor, heads: int, cached: int) -> Tensor:
    """The inverse of :func:`_by_time`."""
    return values.view(values.shape[0], cached, heads).transpose(1, 2).flip(-1)
