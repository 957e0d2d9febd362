"""Keep masks of all variants on one context."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import torch
from torch import Tensor

from harness.config.variants import Planned, Variant
from harness.engine.context import Failure, Scored
from harness.engine.eviction import Policy
from methods.base import Method, Protection
from methods.budgets import Ranking, number_kept


class Masks(NamedTuple):
    """Keep masks of all variants on one context.

    keep     bool ``[V, L, H, T]``
    short    variant by variant: the context is no longer than the protection, so nothing was pruned
    bound    variant by variant: protection alone exceeds the number to keep, of some layer at least
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
        if method.is_control or variant.phase == "decode":
            if method in scored.failed:
                failed[index] = scored.failed[method]
            continue
        kept = number_of_pairs(variant, cached)
        protection = variant.protection() | method.mechanism_for(kept)
        protected = protection.mask(cached, prefix)
        short[index] = bool(protected.all()) or (cached - prefix <= 1 and not method.compat)
        if short[index]:
            continue
        if method not in scores:
            failed[index] = scored.failed[method]
        elif not torch.isfinite(scores[method]).all():
            failed[index] = Failure("nan", f"{method.name} gave scores that are not finite")
        elif method.compat and method.kvpress is not None:
            assert variant.level is not None
            keep[index] = method.kvpress.mask(
                method, scores[method], variant.protection(), prefix, variant.budget, variant.level
            )
        else:
            key = (method, protection)
            ranking = rankings.setdefault(key, Ranking(scores[method], protected))
            numbers = method.kept_by_layer(kept, cached, shape[0]) if variant.budget == "head" else [kept]
            keep[index] = _apply(variant, ranking, numbers)
            bound[index] = variant.budget != "threshold" and int(protected.sum()) > min(numbers, default=kept)
    return Masks(keep, short, bound, failed)


def number_of_pairs(variant: Variant, cached: int) -> int:
    """Pairs that a head keeps of ``cached``; all of them under a threshold, which sets no number."""
    assert variant.level is not None
    if variant.level_kind == "threshold":
        return cached
    return (
        min(int(variant.level), cached)
        if variant.level_kind == "keep_tokens"
        else number_kept(cached, Decimal(str(variant.level)))
    )


def _apply(variant: Variant, ranking: Ranking, numbers: list[int]) -> Tensor:
    """``numbers`` has the pairs a head keeps: one for each layer under the ``head`` budget, else one for all."""
    if variant.budget == "threshold":
        assert variant.level is not None
        return ranking.threshold(variant.level)
    if variant.budget == "head":
        return ranking.head(numbers)
    return ranking.layer(numbers[0]) if variant.budget == "layer" else ranking.global_(numbers[0])


def policy_of(planned: Planned) -> Policy | None:
    """How a variant prunes while it decodes; None in phase ``prefill`` and for the control."""
    variant, method, _ = planned
    if variant.phase == "prefill" or method.is_control:
        return None
    assert variant.level is not None
    kind = variant.level_kind
    return Policy(
        method,
        variant.protection(),
        threshold=variant.level if kind == "threshold" else None,
        removed=Decimal(str(variant.level)) if kind == "removed" else None,
        keep_tokens=int(variant.level) if kind == "keep_tokens" else None,
        spares_context=variant.phase == "decode",
    )
