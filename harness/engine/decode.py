"""Greedy decoding of many variants of one context as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.masked import MaskedRun
from harness.engine.prefill import BLOCK_BYTES, Prefix, check_positions


@dataclass(frozen=True)
class Question:
    """What is asked of a pruned cache.

    ids             question, template suffix and answer prefix, at least one token
    max_new_tokens  answer limit
    stop_ids        tokens that end an answer, the first token included
    stop_text       given the answer's ids so far, whether a stop string has appeared in its text
    """

    ids: tuple[int, ...]
    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()
    stop_text: Callable[[Sequence[int]], bool] = lambda ids: False


@dataclass(frozen=True)
class Answer:
    """Generated ids without the stop token; ``finish_reason`` is ``stop``, ``length`` or ``nan``.

    ``steps`` counts the forwards after the prefill: one with the question, then one for each token fed back.
    """

    ids: tuple[int, ...]
    finish_reason: str
    steps: int


def decode(
    lm: LanguageModel, prefix: Prefix, keep: Tensor, question: Question, block_bytes: int = BLOCK_BYTES
) -> list[Answer]:
    """Answer one question with each variant; ``keep`` is bool ``[V, L, H, T]``. Returns V answers in order.

    Variants with the same mask are decoded once; a finished variant leaves the batch. The prefix is not changed, so
    the next question on it starts from the same state.
    """
    shape = (lm.info.layers, lm.info.kv_heads, prefix.cached)
    if keep.shape[1:] != shape or not len(keep) or not question.ids:
        raise ValueError(f"decode needs masks [V >= 1, {shape}] and a question, got {list(keep.shape)}, {question.ids}")
    needed = prefix.cached + len(question.ids) + question.max_new_tokens
    check_positions(lm, prefix.cached, needed, "prompt and answer")
    first_of, same = distinct(keep)
    answers = _decode_distinct(lm, prefix, keep[first_of], question, block_bytes)
    return [answers[index] for index in same]


def distinct(keep: Tensor) -> tuple[list[int], list[int]]:
    """The first variant of each different mask, and for every variant its index among those."""
    seen: dict[bytes, int] = {}
    first_of: list[int] = []
    same: list[int] = []
    for index, mask in enumerate(keep.flatten(1).cpu()):
        key = mask.numpy().tobytes()
        if key not in seen:
            seen[key] = len(first_of)
            first_of.append(index)
        same.append(seen[key])
    return first_of, same


def _decode_distinct(
    lm: LanguageModel, prefix: Prefix, keep: Tensor, question: Question, block_bytes: int
) -> list[Answer]:
    variants = keep.shape[0]
    generated: list[list[int]] = [[] for _ in range(variants)]
    reasons = ["length"] * variants
    steps = [0] * variants
    alive = list(range(variants))
    run = MaskedRun(lm, prefix, keep, len(question.ids) + question.max_new_tokens, block_bytes)
    ids = torch.tensor([question.ids], device=lm.device).expand(variants, -1)
    with lm.engaged():
        for step in range(question.max_new_tokens):
            hidden = run.advance(ids)[:, -1]
            best, broken = next_tokens(lm, hidden, block_bytes)
            going = []
            for row, variant in enumerate(alive):
                token = best[row]
                steps[variant] += 1
                if broken[row]:
                    reasons[variant] = "nan"
                elif token in question.stop_ids:
                    reasons[variant] = "stop"
                else:
                    generated[variant].append(token)
                    if question.stop_text(generated[variant]):
                        reasons[variant] = "stop"
                    else:
                        going.append(row)
            if not going or step + 1 == question.max_new_tokens:
                break
            if len(going) < len(alive):
                alive = [alive[row] for row in going]
                run.select(going)
            ids = torch.tensor([[generated[variant][-1]] for variant in alive], device=lm.device)
    return [Answer(tuple(ids), reason, count) for ids, reason, count in zip(generated, reasons, steps, strict=True)]


def next_tokens(lm: LanguageModel, hidden: Tensor, block_bytes: int) -> tuple[list[int], list[bool]]:
    """The most likely next token of each row of ``hidden [V, D]``, and whether a row's logits hold a NaN.

    Rows of the LM head are split to the byte budget.
    """
    vocabulary = lm.model.get_output_embeddings().weight.shape[0]
    rows = max(1, block_bytes // (hidden.element_size() * vocabulary))
    best: list[int] = []
    broken: list[bool] = []
    for start in range(0, hidden.shape[0], rows):
        logits = lm.logits(hidden[start : start + rows])
        best += logits.argmax(dim=-1).tolist()
        broken += torch.isnan(logits).any(dim=-1).tolist()
    return best, broken
