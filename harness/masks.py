"""Keep masks of all variants on one context."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.prefill import Failure, Scored
from harness.variants import Planned, Variant
from methods.base import Method, Protection
from methods.budgets import Ranking, number_kept


class Masks(NamedTuple):
    """Keep masks of all variants on one context.

    keep     bool ``[V, L, H, T]``
    short    variant by variant: the context is no longer than the protection, so nothing was pruned
    bound    variant by variant: protection alone exceeds the number to keep
    failed   index of a variant -> (status, reason); its mask keeps everything and is not to be used
    """

    keep: Tensor
    short: list[bool]
    bound: list[bool]
    failed: dict[int, Failure]


def masks(planned: Sequence[Planned], scored: Scored, shape: tuple[int, int, int], prefix: int) -> Masks:
    """Masks of a context whose cache has ``shape`` (L, H, T); rankings are shared between levels."""
    cached = shape[2]
    scores = scored.scores
    keep = torch.ones(len(planned), *shape, dtype=torch.bool)
    short, bound = [False] * len(planned), [False] * len(planned)
    failed: dict[int, Failure] = {}
    rankings: dict[tuple[Method, Protection], Ranking] = {}
    for index, (variant, method, _) in enumerate(planned):
        if method.is_control:
            continue
        protection = variant.protection()
        protected = protection.mask(cached, prefix)
        short[index] = bool(protected.all()) or cached - prefix <= 1
        if short[index]:
            continue
        if method not in scores:
            failed[index] = scored.failed[method]
        elif not torch.isfinite(scores[method]).all():
            failed[index] = Failure("nan", f"{method.name} gave scores that are not finite")
        else:
            key = (method, protection)
            ranking = rankings.setdefault(key, Ranking(scores[method], protected))
            keep[index], bound[index] = _apply(variant, ranking, cached)
    return Masks(keep, short, bound, failed)


def _apply(variant: Variant, ranking: Ranking, cached: int) -> tuple[Tensor, bool]:
    assert variant.level is not None
    if variant.budget == "threshold":
        return ranking.threshold(variant.level), False
    if variant.level_kind == "keep_tokens":
        kept = min(int(variant.level), cached)
    else:
        kept = number_kept(cached, Decimal(str(variant.level)))
    by_budget = {"head": ranking.head, "layer": ranking.layer, "global": ranking.global_}
    return by_budget[variant.budget](kept), int(ranking.protected.sum()) > kept
