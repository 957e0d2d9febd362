"""KVzip+: KVzip's attention weighed by what the value adds to the residual stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Observation, Pass
from methods.kvzip import Reconstruction, peaks
from methods.registry import register

#: least score before the logarithm
SMALLEST = 1e-30


@register
@dataclass(frozen=True)
class KVzipPlus(Reconstruction):
    """s = ln max(1e-30, max over the group's query heads q and new tokens j of a[q, j, t] ||W_O^q v_t|| / ||x_j||).

    KVzap paper (arXiv 2601.07891), section 3.1; x_j is the attention module's input, after the layer's norm, as in
    the authors' code (the paper writes h_j). In logarithms, so that a threshold means the same for this oracle as for
    the KVzap surrogates that predict it.
    """

    name: ClassVar[str] = "kvzip_plus"
    summary: ClassVar[str] = "KVzip times the norm of the pair's output, as a logarithm; what KVzap predicts"
    paper: ClassVar[str] = "arXiv 2601.07891"

    score_range: ClassVar[tuple[float, float]] = (-20.0, 4.0)

    def score(self, seen: Observation) -> Tensor:
        return torch.full(seen.keys.shape[:2], math.log(SMALLEST), device=seen.keys.device)

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        return weighed(seen, peaks(seen, run, self.compat).per_norm, *run.columns)


def weighed(seen: Observation, per_norm: Tensor, start: int, stop: int) -> Tensor:
    """Scores ``[H, stop - start]`` of cached columns from their :attr:`methods.kvzip.Peaks.per_norm`: the norm of
    what each value adds, then the largest of the group's query heads, and the floor."""
    scores = per_norm + output_norms(seen, start, stop).log()
    return scores.view(-1, seen.group, scores.shape[-1]).amax(dim=1).clamp(min=math.log(SMALLEST))


def output_norms(seen: Observation, start: int, stop: int) -> Tensor:
    """||W_O^q v_t|| of the columns start..stop for each query head, float32 ``[Hq, stop - start]``.

    From the Gram matrix of W_O, so that nothing of size ``Hq x T x D`` is made, and by blocks of columns, so that of
    ``Hq x T x d`` neither.
    """
    projection = seen.output_projection.float()
    gram = torch.bmm(projection.transpose(1, 2), projection)  # [Hq, d, d]
    columns = max(1, seen.block_bytes // (12 * gram.shape[0] * gram.shape[1]))  # values, their products, and both's
    squares = []
    for begin in range(start, stop, columns):
        values = seen.values[:, begin : min(stop, begin + columns)].float().repeat_interleave(seen.group, dim=0)
        squares.append((torch.bmm(values, gram) * values).sum(dim=-1))
    return torch.cat(squares, dim=-1).clamp(min=0).sqrt()
