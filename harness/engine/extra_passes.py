"""Extra passes over a full cache: what a pass feeds to the model, and the forward in which methods score from it."""

from __future__ import annotations

import torch

from harness.engine.adapter import LanguageModel
from harness.engine.batch import full_cache
from harness.engine.context import Context, Failure, Prefix, Scored
from harness.engine.decode import Answer, Question, decode
from harness.engine.dense_forward import DenseRun, Observer
from methods.base import Generated, Pass


def run_pass(
    lm: LanguageModel, prefix: Prefix, extra: Pass, seed: int, block_bytes: int, observer: Observer
) -> Failure | None:
    """Run one pass and show its prunable layers to ``observer``; the cache stays as it is.

    An answer that the pass asks for is generated first, then read again with all else in one forward. Returns why the
    pass cannot be run: ``truncated`` where the model lacks positions for it, room for the whole answer included.
    """
    context, target = prefix.context, extra.target
    tokens = opening(extra, context)
    if not isinstance(target, Generated):
        tokens += context.encode(target) if isinstance(target, str) else context.ids[slice(*target)]
    most = target.most if isinstance(target, Generated) else 0
    obstacle = lm.obstacle(prefix.cached, prefix.cached + len(tokens) + most)
    if obstacle:
        return Failure("truncated", f"an extra pass {obstacle}")
    if not tokens:
        return Failure("error", "an extra pass has no token: neither its texts nor the chat template gave one")
    if most:
        answer = generate(lm, prefix, tokens, most, block_bytes)
        if answer.finish_reason == "nan":
            return Failure("nan", "an extra pass: the model's logits hold a NaN")
        tokens += answer.ids
    run = DenseRun(lm, prefix, prefix.cached, seed, block_bytes, observer)
    with run.engaged():
        lm.forward(torch.tensor([tokens], device=lm.device), prefix.cached, run)
    return None


def opening(extra: Pass, context: Context) -> list[int]:
    """What a pass feeds before its target: instruction, lead-in and the template's turn to the assistant."""
    lead = context.ids[slice(*extra.lead_in)] if extra.lead_in else ()
    return [*context.encode(extra.instruction), *lead, *context.suffix]


def generate(lm: LanguageModel, prefix: Prefix, tokens: list[int], most: int, block_bytes: int) -> Answer:
    """The full cache's greedy answer to ``tokens``, as the control would give it."""
    question = Question(tuple(tokens), most, prefix.context.stop_ids)
    return decode(full_cache(lm, Scored(prefix), block_bytes), question)[0]
