"""KeyDiff: keys that differ from the others are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from methods.base import Method, Observation
from methods.kvpress import Kvpress
from methods.registry import register


@register
@dataclass(frozen=True)
class KeyDiff(Method):
    """s = -cos(k, mean of the normalised keys of the head), keys after RoPE. Park et al., "KeyDiff",
    arXiv 2504.15364, section 3. The paper processes a prompt in blocks under a fixed budget; here the whole context is
    scored at once, as in kvpress's plain class.
    """

    name: ClassVar[str] = "keydiff"
    summary: ClassVar[str] = "keeps keys that point away from the head's mean key"
    paper: ClassVar[str] = "arXiv 2504.15364"
    kvpress: ClassVar[Kvpress] = Kvpress()

    def score(self, seen: Observation) -> Tensor:
        directions = normalize(seen.keys.float(), dim=-1)
        mean = normalize(directions.mean(dim=1, keepdim=True), dim=-1)
        return -(directions * mean).sum(dim=-1)
