"""StreamingLLM with original positions: the first four pairs and the newest ones."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.base import Method, Observation, Protection, Step
from methods.kvpress import Kvpress
from methods.registry import register


@register
@dataclass(frozen=True)
class StreamingLLM(Method):
    """Keeps the first four pairs (attention sinks) and the most recent others, the same in all heads.

    Xiao et al., arXiv 2309.17453, section 3. Kept keys keep the RoPE angle of their original position here; the
    paper counts positions inside the cache, as :mod:`methods.streaming_llm_rerotated` does.
    """

    name: ClassVar[str] = "streaming_llm"
    summary: ClassVar[str] = "first 4 pairs and the most recent ones, original positions"
    paper: ClassVar[str] = "arXiv 2309.17453"
    budgets: ClassVar[tuple[str, ...]] = ("head",)
    refused: ClassVar[dict[str, str]] = dict.fromkeys(
        ("layer", "global", "threshold"), "its scores are positions, the same in all heads and layers"
    )
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")
    mechanism: ClassVar[Protection] = Protection(sinks=4)
    kvpress: ClassVar[Kvpress] = Kvpress(("head",))

    def score(self, seen: Observation) -> Tensor:
        # float32 counts exactly up to 2^24 positions
        age = torch.arange(seen.cached, dtype=torch.float32, device=seen.keys.device)
        return age.expand(seen.keys.shape[0], -1)

    def score_new(self, step: Step) -> Tensor:
        return step.positions.float().expand(*step.keys.shape[:2], -1)
