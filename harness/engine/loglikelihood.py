"""Log-likelihoods of given continuations, for all variants of a context at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import check_positions
from harness.engine.masked_decode import MaskedRun


class Likelihood(NamedTuple):
    """Summed log-probability of a continuation's tokens, and whether each of them is the most likely one."""

    logprob: float
    greedy: bool


def likelihoods(batch: Batch, asked: Sequence[int], continuation: Sequence[int]) -> list[Likelihood]:
    """For each variant how likely ``continuation`` is after the pruned prefix and ``asked``, each at least one token.

    Equal variants run once. Log-probabilities are float32 sums, as lm-eval's.
    """
    if not asked or not continuation:
        raise ValueError(f"a likelihood needs tokens before it and tokens of it, got {asked} and {continuation}")
    fed = [*asked, *continuation[:-1]]
    lm = batch.lm
    check_positions(lm, batch.cached, batch.cached + len(fed), "prompt and continuation")
    first_of, same = batch.distinct()
    run = MaskedRun(batch.rows(first_of), len(fed))
    with run.engaged():
        hidden = run.advance(torch.tensor([fed], device=lm.device).expand(len(first_of), -1))
        found = [_likelihood(lm, row[-len(continuation) :], continuation, batch.block_bytes) for row in hidden]
    return [found[index] for index in same]


def _likelihood(lm: LanguageModel, hidden: Tensor, continuation: Sequence[int], block_bytes: int) -> Likelihood:
    """From the states ``[m, D]`` before each of the m tokens; rows of the LM head are split to the byte budget."""
    vocabulary = lm.model.get_output_embeddings().weight.shape[0]
    rows = max(1, block_bytes // (8 * vocabulary))
    targets = torch.tensor(continuation, device=hidden.device)
    total, greedy = 0.0, True
    for start in range(0, len(targets), rows):
        own = targets[start : start + rows]
        logprobs = lm.logits(hidden[start : start + rows]).float().log_softmax(dim=-1)
        total += float(logprobs.gather(1, own.unsqueeze(1)).sum())
        greedy = greedy and bool((logprobs.argmax(dim=-1) == own).all())
    return Likelihood(total, greedy)
