"""How good a surrogate is on held-out text, and which thresholds remove which share of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from methods.base import MethodError

#: removed fractions that a card has thresholds for
SHARES = (0.25, 0.5, 0.75, 0.875)
#: context length for which a share is calibrated that the held-out contexts are too short for
LONGER = 4096


def r2(predicted: Tensor, true: Tensor) -> Tensor:
    """Squared Pearson correlation of each head, float64 ``[H]``, of scores ``[H, rows]``; 0 of a head that is constant.

    The paper's measure (arXiv 2601.07891, section 4): unlike 1 - SSE / SST it forgives a wrong offset or scale, which a
    threshold can make up for.
    """
    x, y = (values.double() - values.double().mean(dim=-1, keepdim=True) for values in (predicted, true))
    scale = x.square().sum(dim=-1) * y.square().sum(dim=-1)
    return torch.where(scale > 0, (x * y).sum(dim=-1).square() / scale.clamp(min=1e-300), 0.0)


class Calibrated(NamedTuple):
    """A threshold, the mean fraction it removes from the held-out contexts, and the share it was calibrated for.

    ``reached`` is false where the window alone keeps more than the share leaves.
    """

    share: float
    tau: float
    measured: float
    reached: bool


def calibrate(scores: Sequence[Tensor], window: int, shares: Sequence[float] = SHARES) -> list[Calibrated]:
    """Thresholds under which the threshold budget removes the shares of contexts with scores ``[L, H, T]`` each.

    Removed counts as in a run: the last ``window`` pairs are kept and counted, the mean is over contexts. A share
    that contexts of these lengths cannot reach is calibrated for a context of :data:`LONGER` tokens instead, in which
    the window weighs less, taking the scores outside the window to be spread as they are here.
    """
    judged = [values[..., : max(0, values.shape[-1] - window)].flatten() for values in scores]
    counted = [values.numel() for values in scores]
    reach = sum(len(part) / whole for part, whole in zip(judged, counted, strict=True)) / len(scores)
    weights = torch.cat(
        [torch.full_like(part, 1 / whole, dtype=torch.float64) for part, whole in zip(judged, counted, strict=True)]
    )
    values, order = torch.cat(judged).sort()
    if not len(values):
        raise MethodError(f"no held-out context is longer than the window of {window}; give longer texts")
    removed = weights[order].cumsum(0) / len(scores)
    found = []
    for share in shares:
        reached = share < reach
        wanted = share if reached else share / (1 - window / LONGER) * reach
        place = min(int(torch.searchsorted(removed, wanted)) + 1, len(values) - 1)
        tau = float(values[place])  # pairs below it go, those equal to it stay
        below = int(torch.searchsorted(values, tau))
        found.append(Calibrated(share, tau, float(removed[below - 1]) if below else 0.0, reached))
    return found
