"""Key norm: pairs with small keys are kept."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from methods.base import Method, Observation, Step
from methods.kvpress import Kvpress
from methods.registry import register


@register
@dataclass(frozen=True)
class Knorm(Method):
    """s = -||k||. RoPE leaves the norm as it is. Devoto et al., "A Simple and Effective L2 Norm-Based Strategy
    for KV Cache Compression", arXiv 2406.11430, section 3. The paper skips layers 0 and 1 and prunes from 2,048
    tokens on; here, as in public comparisons, every layer is pruned at every length.
    """

    name: ClassVar[str] = "knorm"
    summary: ClassVar[str] = "keeps the keys with the smallest norm"
    paper: ClassVar[str] = "arXiv 2406.11430"
    kvpress: ClassVar[Kvpress] = Kvpress(decodes=True)

    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")

    def score(self, seen: Observation) -> Tensor:
        return -seen.keys.float().norm(dim=-1)

    def score_new(self, step: Step) -> Tensor:
        return -step.keys.float().norm(dim=-1)
