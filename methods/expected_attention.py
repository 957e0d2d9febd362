"""Expected Attention: the attention that queries still to come are expected to give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from methods.attention import BLOCK
from methods.base import Method, MethodError, Observation, Protection
from methods.kvpress import Kvpress
from methods.registry import register
from methods.rope import rotate, unrotate

SINKS = 4


class Moments(NamedTuple):
    """Mean ``[Hq, d]`` and covariance ``[Hq, d, d]`` (None where it is off) of the queries to come."""

    mean: Tensor
    covariance: Tensor | None


@register
@dataclass(frozen=True)
class ExpectedAttention(Method):
    """s = (mean over the group's query heads of a + epsilon) * ||v||, a = softmax of ln E[exp(q . k / sqrt d)] for a
    Gaussian query: mu . k / sqrt d + k Sigma k / (2 d). Devoto et al., "Expected Attention", arXiv 2510.00636,
    section 3.

    mu and Sigma are those of the context's queries before RoPE, without the first four tokens, turned by the mean of
    the rotations of the next ``n_future`` positions. The first four pairs are kept and take no part in the softmax. The
    value's norm is taken without the output projection, as in the authors' code. The default epsilon and budget are
    those of their published results; :class:`ExpectedAttentionPlain` has those of their class. float32 throughout; the
    authors' softmax runs in the model's dtype.

    n_future    positions after the context that are averaged over
    epsilon     added to the attention before the value's norm weighs it
    covariance  whether the term with Sigma is there
    vnorm       whether the value's norm weighs
    """

    n_future: int = 512
    epsilon: float = 0.01
    covariance: bool = True
    vnorm: bool = True

    name: ClassVar[str] = "expected_attention"
    summary: ClassVar[str] = "attention expected from the queries of the next 512 positions"
    paper: ClassVar[str] = "arXiv 2510.00636"
    cost: ClassVar[str] = "one d x d form for each pair and query head"
    needs: ClassVar[frozenset[str]] = frozenset({"queries"})
    default_budget: ClassVar[str] = "layer"
    mechanism: ClassVar[Protection] = Protection(sinks=SINKS)
    kvpress: ClassVar[Kvpress] = Kvpress()

    def __post_init__(self) -> None:
        if self.n_future < 1 or not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            got = f"n_future={self.n_future}, epsilon={self.epsilon}"
            raise MethodError(f"{self.name} needs n_future >= 1 and epsilon >= 0, got {got}")

    def score(self, seen: Observation) -> Tensor:
        scores = torch.zeros(seen.keys.shape[:2], device=seen.keys.device)
        if seen.cached <= SINKS:
            return scores
        moments = self._moments(seen)
        logits = torch.cat([_logits(moments, keys, seen) for keys in seen.keys[:, SINKS:].split(_rows(seen), 1)], dim=1)
        attention = logits.softmax(dim=-1).view(-1, seen.group, logits.shape[-1]).mean(dim=1)
        weight = seen.values[:, SINKS:].float().norm(dim=-1) if self.vnorm else 1.0
        scores[:, SINKS:] = (attention + self.epsilon) * weight
        return scores

    def _moments(self, seen: Observation) -> Moments:
        count = seen.new - SINKS
        mean = torch.stack([queries.sum(dim=1) for queries in _unrotated(seen)]).sum(dim=0) / count
        after = int(seen.positions[-1]) + 1
        future = torch.arange(after, after + self.n_future, device=seen.positions.device)
        cos, sin = (part.mean(dim=0) for part in seen.rotation(future))
        turned = rotate(mean, cos, sin)
        if not self.covariance:
            return Moments(turned, None)
        total = torch.zeros(mean.shape[0], mean.shape[1], mean.shape[1], device=mean.device)
        for queries in _unrotated(seen):
            centred = rotate(queries - mean.unsqueeze(1), cos, sin)
            total += torch.bmm(centred.transpose(1, 2), centred)
        return Moments(turned, total / count)


def _rows(seen: Observation) -> int:
    """Tokens of a block whose float32 vectors of all query heads, a few copies of them, fit the byte budget."""
    return max(1, min(seen.block_bytes, BLOCK) // (16 * seen.queries.shape[0] * seen.queries.shape[2]))


def _unrotated(seen: Observation) -> Iterator[Tensor]:
    """The context's queries before RoPE, without those of the first tokens, in blocks ``[Hq, m, d]``, float32."""
    # one call for all positions: a rotary module may choose its angles by the furthest of them
    cos, sin = seen.rotation(seen.positions)
    parts = (part.split(_rows(seen), dim=-2) for part in (seen.queries[:, SINKS:], cos[SINKS:], sin[SINKS:]))
    for queries, own_cos, own_sin in zip(*parts, strict=True):
        yield unrotate(queries.float(), own_cos, own_sin)


def _logits(moments: Moments, keys: Tensor, seen: Observation) -> Tensor:
    """ln E[exp(q . k / sqrt d)] ``[Hq, m]`` of a block of keys ``[H, m, d]``."""
    keys = keys.float().repeat_interleave(seen.group, dim=0)
    logits = torch.bmm(keys, moments.mean.unsqueeze(-1))[..., 0] * seen.scaling
    if moments.covariance is not None:
        logits += (torch.bmm(keys, moments.covariance) * keys).sum(dim=-1) * (seen.scaling**2 / 2)
    return logits


@register
@dataclass(frozen=True)
class ExpectedAttentionPlain(ExpectedAttention):
    """Expected Attention with the defaults of the authors' class, without the epsilon and the AdaKV budget of their
    published results."""

    epsilon: float = 0.0

    name: ClassVar[str] = "expected_attention_plain"
    summary: ClassVar[str] = "expected_attention with epsilon 0, top-k in each head"
    default_budget: ClassVar[str] = "head"
