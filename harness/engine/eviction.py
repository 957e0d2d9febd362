"""Pruning while decoding: which pairs each variant loses after each forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.engine.context import Failure
from harness.engine.guard import checked, failure_of, untouched
from methods.base import Method, Protection, Step
from methods.budgets import number_kept, ranks


@dataclass(frozen=True)
class Policy:
    """How one variant prunes while it decodes.

    Either ``threshold``, each pair judged once when it leaves the window, or a capacity a head: ``removed`` keeps
    at most floor((1 - removed) * C) of the C pairs cached so far, ``keep_tokens`` a constant number. A threshold judges
    the context's newest pairs too, unless it ``spares_context``: they leave the window while decoding.
    """

    method: Method
    protection: Protection
    threshold: float | None = None
    removed: Decimal | None = None
    keep_tokens: int | None = None
    spares_context: bool = False

    def capacity(self, cached: int) -> int:
        if self.keep_tokens is not None:
            return min(self.keep_tokens, cached)
        assert self.removed is not None
        return number_kept(cached, self.removed)


class Evictor:
    """The decode-time state of the rows of a batch that one method prunes.

    rows      places of these variants in the batch
    scores    for each prunable layer float32 ``[v, H, C]``, of every pair cached so far
    keep      the same as bool: what is still seen. Eviction is final and acts from the next forward on
    """

    def __init__(
        self, rows: Sequence[int], policies: Sequence[Policy], scores: Tensor, keep: Tensor, prefix: int
    ) -> None:
        """``scores [L, H, T]`` after the prefill, the same for all rows; ``keep [v, L, H, T]``; ``prefix`` is P."""
        self.rows = list(rows)
        self.policies = list(policies)
        self.method = policies[0].method
        self.prefix = prefix
        self.scores = [layer.expand(len(policies), -1, -1) for layer in scores]
        self.keep = list(keep.to(scores.device).unbind(dim=1))  # masks are made on the CPU
        self.cached = keep.shape[-1]  # T
        #: row by row whether protection alone exceeded the capacity
        self.bound = [False] * len(policies)
        #: why the method's rows mean nothing from here on
        self.failure: Failure | None = None
        self._finite = torch.ones((), dtype=torch.bool, device=scores.device)
        self._kept = torch.zeros(len(self.keep), len(policies), dtype=torch.long)

    def select(self, rows: Sequence[int]) -> bool:
        """Follow the batch when it shrinks to ``rows``; false where none of this method's rows is left."""
        places = {row: place for place, row in enumerate(rows)}
        staying = [own for own, row in enumerate(self.rows) if row in places]
        self.policies = [self.policies[own] for own in staying]
        self.bound = [self.bound[own] for own in staying]
        self.rows = [places[self.rows[own]] for own in staying]
        self.scores = [scores[staying] for scores in self.scores]
        self.keep = [keep[staying] for keep in self.keep]
        self._kept = self._kept[:, staying]
        return bool(staying)

    def after(self, step: Step) -> Tensor:
        """Score the forward's new pairs and judge; returns the keep mask ``[v, H, C]`` for the next forward. Once the
        method has failed nothing is judged any more."""
        layer = step.layer
        keep = pad(self.keep[layer], (0, step.new), value=True)
        scores = self._score(step, self.scores[layer], keep.shape)
        if scores is not None:
            for own, policy in enumerate(self.policies):
                keep[own] = self._judged(own, policy, scores[own], keep[own], step.new)
        self.scores[layer] = pad(self.scores[layer], (0, step.new)) if scores is None else scores
        self.keep[layer] = keep
        self._kept[layer] = keep.sum(dim=(1, 2)).cpu()
        return keep

    def _score(self, step: Step, before: Tensor, shape: torch.Size) -> Tensor | None:
        """The method's scores after a forward, None once it has failed: foreign code must not end the run of others."""
        if self.failure is not None:
            return None
        try:
            with untouched(self.method, step):
                scores = checked(self.method, self.method.score_step(step, before), shape)
        except (Exception, SystemExit) as error:
            self.failure = failure_of(error)
            return None
        self._finite &= torch.isfinite(scores).all()
        return scores

    def _judged(self, own: int, policy: Policy, scores: Tensor, keep: Tensor, new: int) -> Tensor:
        if policy.threshold is None:
            kept = _shrink(policy, scores, keep, new, self.prefix)
            self.bound[own] |= int(kept.sum(dim=-1).max()) > policy.capacity(keep.shape[-1])
            return kept
        first = self.cached if policy.spares_context else 0
        before = keep[:, :first].clone()
        kept = _judge_once(policy, scores, keep, new, self.prefix)
        kept[:, :first] = before
        return kept

    def failed(self) -> dict[int, Failure]:
        """The rows of the batch whose method has failed by the last forward, each with the reason."""
        if self.failure is None and not bool(self._finite):
            self.failure = Failure("nan", f"{self.method.name} gave scores that are not finite while decoding")
        return {} if self.failure is None else dict.fromkeys(self.rows, self.failure)

    def bound_rows(self) -> list[int]:
        """The rows of the batch that protection has kept from their capacity."""
        return [row for row, bound in zip(self.rows, self.bound, strict=True) if bound]

    def kept(self) -> dict[int, int]:
        """Pairs that each row of the batch still sees after the last forward, over layers and heads."""
        return dict(zip(self.rows, self._kept.sum(dim=0).tolist(), strict=True))


def make_evictors(
    policies: Sequence[Policy | None], scores: dict[Method, Tensor], keep: Tensor, prefix: int
) -> list[Evictor]:
    """One evictor for each method that prunes rows of a batch; ``keep [V, L, H, T]``, ``prefix`` is P."""
    by_method: dict[Method, dict[int, Policy]] = {}
    for row, policy in enumerate(policies):
        if policy is not None:
            by_method.setdefault(policy.method, {})[row] = policy
    return [
        Evictor(list(own), list(own.values()), scores[method], keep[list(own)], prefix)
        for method, own in by_method.items()
    ]


def _judge_once(policy: Policy, scores: Tensor, keep: Tensor, new: int, prefix: int) -> Tensor:
    """Threshold: the pairs that leave the window with this forward are kept where their score is at least tau."""
    assert policy.threshold is not None
    cached = scores.shape[-1]
    protection = policy.protection | policy.method.mechanism_for(cached)
    window = protection.window
    leaving = slice(max(0, cached - new - window), max(0, cached - window))
    stays = scores[:, leaving] >= policy.threshold
    stays |= protection.mask(cached, prefix)[leaving].to(keep.device)
    keep[:, leaving] &= stays
    return keep


def _shrink(policy: Policy, scores: Tensor, keep: Tensor, new: int, prefix: int) -> Tensor:
    """Capacity: of the pairs still there, the best stay, protected ones first."""
    cached = scores.shape[-1]
    capacity = policy.capacity(cached)
    if int(keep.sum(dim=-1).max()) <= capacity:
        return keep
    protection = policy.protection | policy.method.mechanism_for(capacity)
    protected = protection.mask(cached, prefix).to(keep.device)
    if int(protected.sum()) > capacity:
        return keep & protected
    order = scores.masked_fill(~keep, float("-inf")).masked_fill(protected & keep, float("inf"))
    return keep & (ranks(order) < capacity)
