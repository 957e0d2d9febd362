"""Decoding of many variants of one context as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import BLOCK_BYTES, Prefix, Scored, check_positions
from harness.engine.eviction import Policy, make_evictors
from harness.engine.masked_decode import MaskedRun
from harness.engine.oom_batching import AtOnce, in_groups
from harness.engine.rerotation import ORIGINAL
from harness.engine.sampling import Sampling


@dataclass(frozen=True)
class Question:
    """What is asked of a pruned cache.

    ids             question, template suffix and answer prefix, at least one token
    max_new_tokens  answer limit
    stop_ids        tokens that end an answer, the first token included
    stop_text       given the answer's ids so far, whether a stop string has appeared in its text
    sampling        how tokens are drawn; None: the most likely one
    """

    ids: tuple[int, ...]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    stop_text: Callable[[Sequence[int]], bool] = lambda ids: False
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Answer:
    """Generated ids without the stop token; ``finish_reason`` is ``stop``, ``length`` or ``nan``.

    steps    forwards after the prefill: one with the question, then one for each token fed back
    kept     pairs that the variant still sees after each of them, over layers and heads
    stopped  the stop token that ended it, if one did
    """

    ids: tuple[int, ...]
    finish_reason: str
    steps: int
    kept: tuple[int, ...] = field(default=(), compare=False)
    stopped: int | None = field(default=None, compare=False)


def decode(
    lm: LanguageModel,
    prefix: Prefix,
    keep: Tensor,
    question: Question,
    block_bytes: int = BLOCK_BYTES,
    positions: Sequence[str] = (),
) -> list[Answer]:
    """One answer of each of V variants that prune in the prefill only; ``keep`` is bool ``[V, L, H, T]``."""
    answers = decode_all(lm, Scored(prefix), keep, question, block_bytes, positions=positions)
    return [rollouts[0] for rollouts in answers]


def decode_all(
    lm: LanguageModel,
    scored: Scored,
    keep: Tensor,
    question: Question,
    block_bytes: int = BLOCK_BYTES,
    policies: Sequence[Policy | None] = (),
    rollouts: int = 1,
    seed: int = 0,
    positions: Sequence[str] = (),
    at_once: AtOnce | None = None,
) -> list[list[Answer]]:
    """Answer one question with each variant; returns for each variant in order its rollouts.

    keep       bool ``[V, L, H, T]``: what the prefill left of the prefix
    policies   for each variant how it prunes while decoding, or None
    rollouts   answers of each variant; more than one needs sampling
    seed       the run's, for methods that draw numbers
    positions  for each variant where its kept pairs stand, ``original`` or ``cache``; none: all original
    at_once    how many rows decode together; lowered here where memory runs out

    Variants with the same mask, policy and positions are decoded once; a finished row leaves the batch. Neither prefix
    nor scores are changed, so the next question starts from the same state. Where memory runs out the batch begins anew
    in halves; one row that does not fit raises what the allocator raised.
    """
    prefix = scored.prefix
    shape = (lm.info.layers, lm.info.kv_heads, prefix.cached)
    if keep.shape[1:] != shape or not len(keep) or not question.ids:
        raise ValueError(f"decode needs masks [V >= 1, {shape}] and a question, got {list(keep.shape)}, {question.ids}")
    if rollouts > 1 and question.sampling is None:
        raise ValueError("several rollouts of a greedy answer are the same; give the question a sampling")
    needed = prefix.cached + len(question.ids) + question.max_new_tokens
    check_positions(lm, prefix.cached, needed, "prompt and answer")
    policies = policies or [None] * len(keep)
    positions = positions or [ORIGINAL] * len(keep)
    first_of, same = distinct(keep, policies, positions)
    rows = [Row(index, rollout) for index in first_of for rollout in range(rollouts)]
    batch = partial(_Batch, lm, scored, keep, question, policies, positions, block_bytes=block_bytes, seed=seed)
    answers = in_groups(lambda group: batch(group).run(), rows, at_once or AtOnce())
    return [answers[index * rollouts : (index + 1) * rollouts] for index in same]


class Row(NamedTuple):
    """One row of a batch: a variant and which of its rollouts."""

    variant: int
    rollout: int


def distinct(
    keep: Tensor, policies: Sequence[Policy | None] = (), positions: Sequence[str] = ()
) -> tuple[list[int], list[int]]:
    """The first variant of each different mask, policy and positions, and for every variant its index among those."""
    seen: dict[tuple[bytes, Policy | None, str], int] = {}
    first_of: list[int] = []
    same: list[int] = []
    policies, positions = policies or [None] * len(keep), positions or [ORIGINAL] * len(keep)
    for index, (mask, policy, kind) in enumerate(zip(keep.flatten(1).cpu(), policies, positions, strict=True)):
        key = (mask.numpy().tobytes(), policy, kind)
        if key not in seen:
            seen[key] = len(first_of)
            first_of.append(index)
        same.append(seen[key])
    return first_of, same


class _Batch:
    """All rows that decode one question together."""

    def __init__(
        self,
        lm: LanguageModel,
        scored: Scored,
        keep: Tensor,
        question: Question,
        policies: Sequence[Policy | None],
        positions: Sequence[str],
        rows: Sequence[Row],
        block_bytes: int,
        seed: int,
    ) -> None:
        self.lm = lm
        self.question = question
        self.rows = rows
        self.block_bytes = block_bytes
        masks = keep[[row.variant for row in rows]]
        prefix = scored.prefix
        evictors = make_evictors([policies[row.variant] for row in rows], scored.scores, masks, prefix.context.prefix)
        capacity = len(question.ids) + question.max_new_tokens
        context_seed = prefix.context.seed(seed)
        stand = [positions[row.variant] for row in rows]
        self.state = MaskedRun(lm, prefix, masks, capacity, block_bytes, evictors, context_seed, stand)
        self.kept_of_prefix = masks.flatten(1).sum(dim=1).tolist()
        self.alive = list(range(len(rows)))
        self.generated: list[list[int]] = [[] for _ in rows]
        self.kept: list[list[int]] = [[] for _ in rows]
        self.reasons = ["length"] * len(rows)
        self.stopped: list[int | None] = [None] * len(rows)

    def run(self) -> list[Answer]:
        question = self.question
        ids = torch.tensor([question.ids], device=self.lm.device).expand(len(self.rows), -1)
        with self.state.engaged():
            for step in range(question.max_new_tokens):
                hidden = self.state.advance(ids)[:, -1]
                self._count()
                going = self._take(hidden, step)
                if not going or step + 1 == question.max_new_tokens:
                    break
                if len(going) < len(self.alive):
                    self.alive = [self.alive[place] for place in going]
                    self.state.select(going)
                ids = torch.tensor([[self.generated[row][-1]] for row in self.alive], device=self.lm.device)
        parts = zip(self.generated, self.reasons, self.kept, self.stopped, strict=True)
        return [Answer(tuple(ids), reason, len(kept), tuple(kept), stopped) for ids, reason, kept, stopped in parts]

    def _take(self, hidden: Tensor, step: int) -> list[int]:
        """Choose each row's next token; returns the places of the rows that go on."""
        rollouts = [self.rows[row].rollout for row in self.alive]
        tokens, broken = next_tokens(self.lm, hidden, self.block_bytes, self.question.sampling, rollouts, step)
        going = []
        for place, row in enumerate(self.alive):
            if broken[place]:
                self.reasons[row] = "nan"
            elif tokens[place] in self.question.stop_ids:
                self.reasons[row] = "stop"
                self.stopped[row] = tokens[place]
            else:
                self.generated[row].append(tokens[place])
                if self.question.stop_text(self.generated[row]):
                    self.reasons[row] = "stop"
                else:
                    going.append(place)
        return going

    def _count(self) -> None:
        """Note how many pairs each row still sees after a forward."""
        suffix = self.lm.info.layers * self.lm.info.kv_heads * self.state.used
        evicting = {place: count for evictor in self.state.evictors for place, count in evictor.kept().items()}
        for place, row in enumerate(self.alive):
            self.kept[row].append(evicting.get(place, self.kept_of_prefix[row] + suffix))


def next_tokens(
    lm: LanguageModel,
    hidden: Tensor,
    block_bytes: int,
    sampling: Sampling | None = None,
    rollouts: Sequence[int] = (),
    step: int = 0,
) -> tuple[list[int], list[bool]]:
    """The next token of each row of ``hidden [V, D]``, the most likely or a drawn one, and whether a row's logits hold
    a NaN. Rows of the LM head are split to the byte budget.
    """
    vocabulary = lm.model.get_output_embeddings().weight.shape[0]
    rows = max(1, block_bytes // (hidden.element_size() * vocabulary))
    chosen: list[int] = []
    broken: list[bool] = []
    for start in range(0, hidden.shape[0], rows):
        logits = lm.logits(hidden[start : start + rows])
        if sampling is None:
            chosen += logits.argmax(dim=-1).tolist()
        else:
            chosen += sampling.pick(logits, rollouts[start : start + rows], step).tolist()
        broken += torch.isnan(logits).any(dim=-1).tolist()
    return chosen, broken
