"""Decoding of many variants of one context as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import Failure, check_positions
from harness.engine.masked_decode import MaskedRun
from harness.engine.oom_batching import in_groups
from harness.engine.sampling import Sampling


@dataclass(frozen=True)
class Question:
    """What is asked of a pruned cache.

    ids             question, template suffix and answer prefix, at least one token
    max_new_tokens  answer limit
    stop_ids        tokens that end an answer, the first token included
    stop_text       given the answer's ids so far, whether a stop string has appeared in its text
    sampling        how tokens are sampled; None: the most likely one
    """

    ids: tuple[int, ...]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    stop_text: Callable[[Sequence[int]], bool] = lambda ids: False
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Answer:
    """Generated ids without the stop token; ``finish_reason`` is ``stop``, ``length``, ``nan`` or ``failed``.

    steps    forwards after the prefill: one with the question, then one for each token fed back
    kept     pairs that the variant still sees after each of them, over layers and heads
    stopped  the stop token that ended it, if one did
    bound    whether protection alone exceeded a capacity while decoding
    failure  why the method that prunes it failed on the way; ``finish_reason`` is then ``failed``
    """

    ids: tuple[int, ...]
    finish_reason: str
    steps: int
    kept: tuple[int, ...] = field(default=(), compare=False)
    stopped: int | None = field(default=None, compare=False)
    bound: bool = field(default=False, compare=False)
    failure: Failure | None = None


def decode(batch: Batch, question: Question) -> list[Answer]:
    """One answer of each variant; see :func:`decode_all`."""
    return [rollouts[0] for rollouts in decode_all(batch, question)]


def decode_all(batch: Batch, question: Question, rollouts: int = 1) -> list[list[Answer]]:
    """Answer one question with each variant; returns for each variant in order its rollouts, of which more than one
    need sampling.

    Equal variants are decoded once; a finished row leaves the batch. When memory runs out the batch starts again in
    halves; one row that does not fit raises what the allocator raised.
    """
    if not len(batch.keep) or not question.ids:
        raise ValueError(f"decode needs a variant and a question, got {len(batch.keep)} variants, {question.ids}")
    if rollouts > 1 and question.sampling is None:
        raise ValueError("several rollouts of a greedy answer are the same; give the question a sampling")
    needed = batch.cached + len(question.ids) + question.max_new_tokens
    check_positions(batch.lm, batch.cached, needed, "prompt and answer")
    first_of, same = batch.distinct()
    rows = [Row(index, rollout) for index in first_of for rollout in range(rollouts)]
    answers = in_groups(lambda group: _Decoding(batch, question, group).run(), rows, batch.at_once)
    return [answers[index * rollouts : (index + 1) * rollouts] for index in same]


class Row(NamedTuple):
    """One row of a batch: a variant and which of its rollouts."""

    variant: int
    rollout: int


class _Decoding:
    """All rows that decode one question together."""

    def __init__(self, batch: Batch, question: Question, rows: Sequence[Row]) -> None:
        self.lm = batch.lm
        self.question = question
        self.rows = rows
        self.block_bytes = batch.block_bytes
        own = batch.rows([row.variant for row in rows])
        self.state = MaskedRun(own, len(question.ids) + question.max_new_tokens)
        self.kept_of_prefix = own.keep.flatten(1).sum(dim=1).tolist()
        self.alive = list(range(len(rows)))
        self.generated: list[list[int]] = [[] for _ in rows]
        self.kept: list[list[int]] = [[] for _ in rows]
        self.reasons = ["length"] * len(rows)
        self.stopped: list[int | None] = [None] * len(rows)
        self.bound = [False] * len(rows)
        self.failures: list[Failure | None] = [None] * len(rows)

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
        parts = zip(self.generated, self.reasons, self.kept, self.stopped, self.bound, self.failures, strict=True)
        return [Answer(tuple(ids), reason, len(kept), tuple(kept), *rest) for ids, reason, kept, *rest in parts]

    def _take(self, hidden: Tensor, step: int) -> list[int]:
        """Choose each row's next token; returns the places of the rows that continue."""
        rollouts = [self.rows[row].rollout for row in self.alive]
        tokens, broken = next_tokens(self.lm, hidden, self.block_bytes, self.question.sampling, rollouts, step)
        failed = {row: failure for evictor in self.state.evictors for row, failure in evictor.failed().items()}
        going = []
        for place, row in enumerate(self.alive):
            if place in failed:
                self.reasons[row], self.failures[row] = "failed", failed[place]
            elif broken[place]:
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
        for evictor in self.state.evictors:
            for place in evictor.bound_rows():
                self.bound[self.alive[place]] = True
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
    """The next token of each row of ``hidden [V, D]``, the most likely or a sampled one, and whether a row's logits
    hold a NaN. Rows of the LM head are split to the byte budget.
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
