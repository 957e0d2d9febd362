"""``compat="kvpress"``: the choices of NVIDIA/kvpress 0.5.5 where this package makes others.

Scores are ours, in float32, except that KVzip's softmax gets kvpress's sinks. What changes is which pairs always stay,
how numbers are rounded (:meth:`Kvpress.mask`) and how a prompt is put together. A method says in
:attr:`methods.base.Method.kvpress` what kvpress has of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from methods.budgets import Ranking
from methods.protection import Protection

#: newest pairs that the threshold policy (DMSPress) never judges, whatever scores it is given
DMS_WINDOW = 128
#: first pairs that take the place of the template prefix in KVzip's softmax, and rank above all others
KVZIP_SINKS = 4


@dataclass(frozen=True)
class Kvpress:
    """What kvpress has of a method.

    budgets  of the method's own budgets those that kvpress has: ``head`` is its ScorerPress, ``layer`` AdaKVPress,
             ``threshold`` DMSPress, ``global`` KVzipPress
    sinks    first pairs that rank above all others, as the method's own mechanism does; ``--sinks`` replaces them
    pooled   KVzipPress: what is rounded is the number removed over all heads (and layers) at once, and no head is
             guaranteed a share; its ``layer`` is the option ``layerwise``
    decodes  whether DMSPress can continue with the scores while decoding: it shows a method only the new pairs

    Its functions are given the method itself, for its options; methods import this module, so its type is not named.
    """

    budgets: tuple[str, ...] = ("head", "layer", "threshold")
    sinks: int = 0
    pooled: bool = False
    decodes: bool = False

    def protection(self, budget: str) -> Protection:
        """What stays under a budget, in place of the protection that a method was published with."""
        return Protection(sinks=self.sinks, window=DMS_WINDOW if budget == "threshold" else 0)

    def numbers(self, method: Any, removed: float, cached: int, layers: int) -> list[int]:
        """Pairs that the heads of each layer keep under the ``head`` and ``layer`` budgets."""
        return [kvpress_kept(cached, removed)] * layers

    def lacks(self, method: Any) -> str:
        """Why kvpress cannot do what the method's options say; empty where it can."""
        return ""

    def mask(
        self, method: Any, scores: Tensor, protection: Protection, prefix: int, budget: str, level: float
    ) -> Tensor:
        """What kvpress keeps under a budget, bool ``[L, H, T]``; ``level`` is a removed fraction or a threshold.

        Under a fraction nothing beyond the number kept stays, protected or not. ``prefix`` is P.
        """
        layers, heads, cached = scores.shape
        scores = raised(scores, method.mechanism_for(cached).mask(cached, prefix).to(scores.device))
        ranking = Ranking(scores, protection.mask(cached, prefix))
        if budget == "threshold":
            return ranking.threshold(level)
        if budget == "global":
            return ranking.best_anywhere(kvpress_left(layers * heads * cached, level))
        numbers = self.numbers(method, level, cached, layers)
        if budget == "head":
            return ranking.best_in_heads(numbers)
        if self.pooled:
            return ranking.best_in_layers(kvpress_left(heads * cached, level), sure=0)
        return ranking.best_in_layers(heads * numbers[0], kvpress_safe(numbers[0]))


class TOVAPress(Kvpress):
    def lacks(self, method: Any) -> str:
        return "" if method.keep_newest else "NVIDIA/kvpress always keeps TOVA's newest token"


class SnapKVPress(Kvpress):
    def lacks(self, method: Any) -> str:
        return "" if method.pool == "mean" else "NVIDIA/kvpress pools SnapKV's scores only by the mean"


class PyramidKVPress(SnapKVPress):
    """The mean number is not rounded before it is spread over the layers; each number is rounded to the nearest, not
    down, that of all layers too where they get the same."""

    def numbers(self, method: Any, removed: float, cached: int, layers: int) -> list[int]:
        window = method.mechanism.window
        capacity = window + cached * (1 - removed)
        least = (capacity - window) / method.beta
        most = (capacity - window) * 2 - least
        if most >= cached - window:
            most = cached - window
            least = (capacity - window) * 2 - most
        if not cached >= most >= least >= window:
            return [max(1, round(cached * (1 - removed)))] * layers
        step = (most - least) / (layers - 1) if layers > 1 else 0.0
        return [round(most - layer * step) for layer in range(layers)]


class KVzipPress(Kvpress):
    def lacks(self, method: Any) -> str:
        if method.pretext != "repeat":
            return "NVIDIA/kvpress has only the pretext repeat"
        return "" if method.lead_in == 8 else "NVIDIA/kvpress has only a lead_in of 8"


class KVzapPress(Kvpress):
    def lacks(self, method: Any) -> str:
        reads = method.surrogate.features if method.surrogate else "hidden"
        return "" if reads == "hidden" else f"NVIDIA/kvpress has no KVzap surrogate that reads {reads}"


def kvpress_kept(cached: int, removed: float) -> int:
    """Pairs kept in a head, rounded in binary floats: 1,000 pairs at 0.9 keep 99."""
    return min(cached, max(1, int(cached * (1 - removed))))


def kvpress_safe(kept: int) -> int:
    """Pairs that kvpress's AdaKV guarantees each head, of a number kept that counts protected pairs like others."""
    return max(1, int(kept * 0.2))


def kvpress_left(pairs: int, removed: float) -> int:
    """Pairs that kvpress's KVzip keeps of those of several heads; here the number removed is rounded down."""
    return pairs - int(pairs * removed)


def raised(scores: Tensor, places: Tensor) -> Tensor:
    """Scores ``[L, H, T]`` with those at ``places`` (bool ``[T]``) set to the layer's largest other score plus one, as
    kvpress does with the pairs that a method keeps by itself."""
    others = scores.masked_fill(places, float("-inf")).amax(dim=(1, 2), keepdim=True)
    return torch.where(places, others + 1, scores)
