"""Teacher forcing: all variants of a context read the same given tokens, and what each expects of them is compared with
what the full cache expects. Nothing is sampled, so nothing is left to chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import Failure, check_positions
from harness.engine.masked_decode import MaskedRun
from harness.engine.oom_batching import in_groups

#: hidden widths that a layer holds of each token at once, its MLP included; only memory depends on it
WIDTHS = 16
#: bytes that one logit costs: float64, and the copies that the softmax and the product make
LOGIT_BYTES = 32


class Reading(NamedTuple):
    """What one variant expects of each of n given tokens, before it sees the token.

    kl     float64 ``[n]``: KL(full || variant) of the distributions over the vocabulary, in nats
    same   bool ``[n]``: whether the most likely token is the full cache's
    nll    float64 ``[n]``: -log p of the given token
    kept   pairs that the variant sees when it predicts each token, over layers and heads
    bound, failure   as of :class:`harness.engine.decode.Answer`; the figures of a failed one mean nothing
    """

    kl: Tensor
    same: Tensor
    nll: Tensor
    kept: tuple[int, ...]
    bound: bool = False
    failure: Failure | None = None


class Readings(NamedTuple):
    """``full`` is the full cache's reading, what the variants' are compared with: its KL is 0 and ``same`` true."""

    full: Reading
    variants: list[Reading]


def read_all(batch: Batch, question: Sequence[int], target: Sequence[int]) -> Readings:
    """Have each variant read ``target`` after ``question``, both at least one token long, beside the full cache.

    Rows that prune while decoding read token by token, as they would have answered, and all others beside them. Equal
    variants run once. When memory runs out the batch starts again in halves, the full cache in each of them.
    """
    if not question or not target:
        raise ValueError(f"reading needs a question and a target, got {question} and {target}")
    fed = len(question) + len(target) - 1
    check_positions(batch.lm, batch.cached, batch.cached + fed, "prompt and reference")
    everyone = batch.with_control()
    first_of, same = everyone.distinct()  # the full cache is the first of them

    def read(group: Sequence[int]) -> list[Reading]:
        own = everyone.rows(group if group[0] == 0 else [0, *group])  # a row is compared with the full cache beside it
        kept = own.keep.flatten(1).sum(dim=1).tolist()
        run = MaskedRun(own, fed)
        compared = _compare_all(run, kept, question, target)
        failed = {row: failure for evictor in run.evictors for row, failure in evictor.failed().items()}
        bound = {row for evictor in run.evictors for row in evictor.bound_rows()}
        parts = enumerate(zip(*compared[:3], compared[3], strict=True))
        return [Reading(*figures, row in bound, failed.get(row)) for row, figures in parts][-len(group) :]

    readings = in_groups(read, first_of, batch.at_once)
    return Readings(readings[same[0]], [readings[place] for place in same[1:]])


def _compare_all(
    run: MaskedRun, of_prefix: list[int], question: Sequence[int], target: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, list[tuple[int, ...]]]:
    """KL, agreement and -log p ``[V, n]`` of all rows of a batch, and of each row what it sees step by step;
    ``of_prefix`` are the pairs that its mask keeps."""
    lm, first = run.lm, len(question) - 1
    pairs = lm.info.layers * lm.info.kv_heads
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    kept: list[list[int]] = [[] for _ in range(run.variants)]
    with run.engaged():
        for ids in _pieces(run, question, target):
            start = run.used
            hidden = run.advance(torch.tensor([ids], device=lm.device).expand(run.variants, -1))
            new = hidden[:, max(0, first - start) :]
            if not new.shape[1]:
                continue
            place = max(0, start - first)
            wanted = torch.tensor(target[place : place + new.shape[1]], device=lm.device)
            found.append(compare(lm, new, wanted, run.block_bytes))
            evicting = {row: count for evictor in run.evictors for row, count in evictor.kept().items()}
            for row, counts in enumerate(kept):
                steps = range(place, place + new.shape[1])
                counts += [evicting.get(row, of_prefix[row] + pairs * (first + 1 + step)) for step in steps]
    kl, same, nll = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
    return kl, same, nll, [tuple(counts) for counts in kept]


def compare(lm: LanguageModel, hidden: Tensor, targets: Tensor, block_bytes: int) -> tuple[Tensor, Tensor, Tensor]:
    """KL(row 0 || row), agreement of the most likely token with row 0's, and -log p of the targets: ``[V, m]`` each.

    hidden ``[V, m, D]``, targets ``[m]``. Logits of a few positions and rows at a time are there at once, in float64.
    """
    variants, new = hidden.shape[:2]
    vocabulary = lm.model.get_output_embeddings().weight.shape[0]
    most = max(2, block_bytes // (LOGIT_BYTES * vocabulary))
    count = min(new, most // 2)
    some = most // count - 1
    kl = torch.zeros(variants, new, dtype=torch.float64)
    same = torch.ones(variants, new, dtype=torch.bool)
    nll = torch.empty(variants, new, dtype=torch.float64)
    for start in range(0, new, count):
        span = slice(start, min(new, start + count))
        index = targets[span].unsqueeze(-1)
        full = _log_probabilities(lm, hidden[0, span])
        shares, best = full.exp(), full.argmax(dim=-1)
        nll[0, span] = -full.gather(-1, index).squeeze(-1).cpu()
        for row in range(1, variants, some):
            rows = slice(row, min(variants, row + some))
            own = _log_probabilities(lm, hidden[rows, span])
            same[rows, span] = (own.argmax(dim=-1) == best).cpu()
            nll[rows, span] = -own.gather(-1, index.expand(own.shape[0], -1, -1)).squeeze(-1).cpu()
            # rounding alone can take it under 0
            kl[rows, span] = own.neg_().add_(full).mul_(shares).sum(dim=-1).clamp_(min=0).cpu()
    return kl, same, nll


def _log_probabilities(lm: LanguageModel, hidden: Tensor) -> Tensor:
    return lm.logits(hidden).double().log_softmax(dim=-1)


def _pieces(run: MaskedRun, question: Sequence[int], target: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The tokens of each forward; the last token of the target predicts nothing more and is not fed."""
    if run.evictors:
        yield tuple(question)
        yield from ((token,) for token in target[:-1])
        return
    fed = (*question, *target[:-1])
    row = run.variants * WIDTHS * run.lm.info.hidden_size * run.keys[0].element_size()
    count = max(1, run.block_bytes // row)
    yield from (fed[start : start + count] for start in range(0, len(fed), count))
