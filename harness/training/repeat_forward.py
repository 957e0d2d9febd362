"""Runs the model over repetitions of excerpts and hands over each layer's features and targets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import BLOCK_BYTES, Context, Prefix, check_positions
from harness.engine.dense_forward import DenseRun
from harness.models.prompts import Prompts
from methods.base import Observation
from methods.kvzap.targets import features, repeat_targets
from methods.kvzip import REPEAT_ALL

#: receives (layer, features [T, F], targets [T, H]) of a context of T tokens, template prefix included
Taker = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class Repetition:
    """A chat in which the user gives a text and asks for it, and the assistant repeats it.

    ``ids`` are the template's prefix, the text, the instruction, the template's turn to the assistant, and the text
    again. Built from ids, so that both copies are the same tokens. ``context`` counts prefix and first copy.
    """

    ids: tuple[int, ...]
    prefix: int
    context: int

    @property
    def copy(self) -> slice:
        """Where the text stands again."""
        return slice(len(self.ids) - (self.context - self.prefix), len(self.ids))


def repetition(prompts: Prompts, text_ids: tuple[int, ...]) -> Repetition:
    """The repetition of an excerpt under the tokenizer's own chat template."""
    prefix = prompts.encode(prompts.frame.prefix)
    between = [*prompts.encode(REPEAT_ALL), *prompts.encode(prompts.frame.suffix)]
    return Repetition((*prefix, *text_ids, *between, *text_ids), len(prefix), len(prefix) + len(text_ids))


def collect(lm: LanguageModel, chat: Repetition, kind: str, take: Taker) -> None:
    """One dense forward; ``take`` gets each prunable layer while it runs, and nothing is kept between layers."""
    check_positions(lm, len(chat.ids), len(chat.ids), "a repeated text")
    rows = slice(0, chat.context)

    def observe(seen: Observation) -> None:
        take(seen.layer, features(seen, kind)[rows], repeat_targets(seen, chat.context, chat.copy).T)

    cache = Prefix(Context(chat.ids, chat.prefix), [], [], torch.empty(0))
    run = DenseRun(lm, cache, 0, 0, BLOCK_BYTES, observe)
    with run.engaged():
        lm.forward(torch.tensor([chat.ids], device=lm.device), 0, run)


def fingerprint(lm: LanguageModel) -> str:
    """A digest of the model's shape and of two of its weights: another model under the same name has another one."""
    digest = hashlib.sha256(repr((lm.info, lm.dtype)).encode())
    for layer in (0, len(lm.attention) - 1):
        weights = lm.output_projection(layer).float().cpu().contiguous()
        digest.update(weights.numpy().tobytes())
    return digest.hexdigest()
