"""Keep masks of a context's variants for each question on it, by the variants' query modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from harness.config.run_config import AGNOSTIC, AWARE, REUSED
from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel
from harness.engine.context import Failure, Scored, unless_out_of_memory
from harness.engine.query_aware import score_in_view
from harness.evaluation.keep_masks import Masks, masks
from methods.base import Method


@dataclass
class QuestionMasks:
    """Masks of all ``planned`` variants of one context, in their order.

    scored      the context's prefill, with the scores of the variants that see no question
    first       ids of the context's first question, which ``aware-reused`` is pruned with
    in_view     whether query modes are distinguished; false: every variant is pruned once, on what was prefilled

    A protection, a method's own window too, is that of the context in every mode, so the modes differ in scores alone.
    """

    lm: LanguageModel
    planned: Sequence[Planned]
    scored: Scored
    first: tuple[int, ...]
    seed: int
    block_bytes: int
    in_view: bool
    places: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {}
        for index, (variant, _, _) in enumerate(self.planned):
            self.places.setdefault(variant.query_mode if self.in_view else AGNOSTIC, []).append(index)
        self._once = self._masks(AGNOSTIC, self.scored)
        self._reused: Masks | None = None

    def of(self, question: tuple[int, ...]) -> Masks:
        """Masks for the question with these ids."""
        parts = {AGNOSTIC: self._once}
        if AWARE in self.places:
            seen = self._see(question)
            parts[AWARE] = self._masks(AWARE, seen)
            if question == self.first and self._reused is None:
                self._reused = self._masks(REUSED, seen)
        if REUSED in self.places:
            if self._reused is None:
                self._reused = self._masks(REUSED, self._see(self.first))
            parts[REUSED] = self._reused
        return self._once if len(parts) == 1 else self._merged(parts)

    def _see(self, question: tuple[int, ...]) -> Scored:
        methods = later_methods(self.planned)
        prefix, seed = self.scored.prefix, self.seed
        seen = unless_out_of_memory(score_in_view, self.lm, prefix, question, methods, seed, self.block_bytes)
        return Scored(prefix, failed=dict.fromkeys(methods, seen)) if isinstance(seen, Failure) else seen

    def _masks(self, mode: str, scored: Scored) -> Masks:
        prefix = scored.prefix
        shape = (self.lm.info.layers, self.lm.info.kv_heads, prefix.cached)
        return masks([self.planned[i] for i in self.places.get(mode, [])], scored, shape, prefix.context.prefix)

    def _merged(self, parts: dict[str, Masks]) -> Masks:
        count = len(self.planned)
        keep = torch.empty(count, *self._once.keep.shape[1:], dtype=torch.bool)
        short, bound = [False] * count, [False] * count
        failed: dict[int, Failure] = {}
        for mode, part in parts.items():
            for own, index in enumerate(self.places.get(mode, [])):
                keep[index], short[index], bound[index] = part.keep[own], part.short[own], part.bound[own]
                if own in part.failed:
                    failed[index] = part.failed[own]
        return Masks(keep, short, bound, failed)


def once_methods(planned: Sequence[Planned], in_view: bool) -> list[Method]:
    """Methods that score while the context is prefilled."""
    return [p.method for p in planned if not in_view or p.variant.query_mode == AGNOSTIC]


def later_methods(planned: Sequence[Planned]) -> list[Method]:
    """Methods that score with a question in view."""
    return list(dict.fromkeys(p.method for p in planned if p.variant.query_mode != AGNOSTIC))
