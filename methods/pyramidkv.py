"""PyramidKV: SnapKV's scores, more pairs in the first layers than in the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from methods.base import MethodError
from methods.kvpress import Kvpress, PyramidKVPress
from methods.registry import register
from methods.snapkv import WINDOW, SnapKV


@register
@dataclass(frozen=True)
class PyramidKV(SnapKV):
    """Numbers kept fall linearly from the first layer to the last, their mean being the level's. Cai et al.,
    "PyramidKV", arXiv 2406.02069, section 4; counts as in kvpress.

    With m pairs a head on average: the last layer gets m / beta, the first 2 m - m / beta. Where the first would get
    more than all pairs outside the window it gets those, and the last what is left; where the last would get less
    than the window, all layers get m, which is SnapKV. So at strong levels the two are one (at 4,096 tokens from 0.75
    removed on).

    beta   ratio of the mean number to that of the last layer
    """

    beta: int = 20

    name: ClassVar[str] = "pyramidkv"
    summary: ClassVar[str] = "SnapKV with more pairs in the first layers than in the last"
    paper: ClassVar[str] = "arXiv 2406.02069"
    budgets: ClassVar[tuple[str, ...]] = ("head",)
    kvpress: ClassVar[Kvpress] = PyramidKVPress(("head",))
    refused: ClassVar[dict[str, str]] = dict.fromkeys(
        ("layer", "global", "threshold"), "it sets the number kept in each layer itself"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta < 1:
            raise MethodError(f"{self.name} needs beta >= 1, got {self.beta}")

    def kept_by_layer(self, kept: int, cached: int, layers: int) -> list[int]:
        most, least = 2 * kept - kept / self.beta, kept / self.beta
        if most >= cached - WINDOW:
            most = cached - WINDOW
            least = 2 * kept - most
        if not cached >= most >= least >= WINDOW or layers == 1:
            return [kept] * layers
        step = (most - least) / (layers - 1)
        return [round(most - layer * step) for layer in range(layers)]
