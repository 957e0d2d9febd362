"""What all variants of a sample read where its benchmark is teacher-forced, and the figures of having read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.base import Sample
from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch, full_cache
from harness.engine.context import Context, Failure, Prefix, Scored
from harness.engine.decode import Question, decode
from harness.engine.extra_passes import opening
from harness.engine.teacher_forcing import Reading, read_all
from harness.results.schema import MOST_FIGURE
from methods.kvzip import KVzip

BROKEN = "the model's logits hold a NaN"


class Part(NamedTuple):
    """What is fed as it is, then what is predicted token by token; every part starts from the pruned context."""

    question: tuple[int, ...]
    target: tuple[int, ...]


class Reference(NamedTuple):
    """``answer`` and ``finish_reason`` are there where the model wrote it itself; a failed one has no parts."""

    parts: tuple[Part, ...]
    answer: tuple[int, ...] | None = None
    finish_reason: str | None = None

    @property
    def tokens(self) -> int:
        return sum(len(part.target) for part in self.parts)


def given(kind: str, sample: Sample, context: Context, question: Question) -> tuple[Part, ...] | None:
    """The parts of a reference that is known without the model; None where the model writes."""
    if kind == "text":
        assert sample.target is not None
        return (Part(question.ids, tuple(context.encode(sample.target)[: sample.max_new_tokens])),)
    if kind == "repeat":  # KVzip's own passes, its wording, chunks and lead-ins
        passes = KVzip(chunk=sample.max_new_tokens).passes(len(context.ids), context.prefix)
        return tuple(Part(tuple(opening(one, context)), context.ids[slice(*one.columns)]) for one in passes)
    return None


def reference(
    kind: str, sample: Sample, question: Question, lm: LanguageModel, prefix: Prefix, block_bytes: int
) -> Reference:
    """What a sample's variants read, ``kind`` being its benchmark's ``teacher_forced``: something given, or the full
    cache's greedy answer, its stop token included."""
    parts = given(kind, sample, prefix.context, question)
    if parts is not None:
        return Reference(parts)
    answer = decode(full_cache(lm, Scored(prefix), block_bytes), question)[0]
    if answer.finish_reason == "nan":
        return Reference((), answer.ids, "nan")
    target = answer.ids if answer.stopped is None else (*answer.ids, answer.stopped)
    return Reference((Part(question.ids, target),), answer.ids, answer.finish_reason)


def longest(kind: str, sample: Sample, context: Context, question: Question) -> int:
    """Positions that reading the reference, or writing an answer, takes after the context, at most."""
    parts = given(kind, sample, context, question)
    if parts is None:
        return len(question.ids) + question.max_new_tokens
    return max((len(part.question) + len(part.target) for part in parts), default=0)


class Result(NamedTuple):
    """What one variant made of a reference: score and metrics, or the status ``nan``; and for each part the tokens of
    its question and the pairs kept at each step."""

    outcome: dict[str, Any]
    kept: list[tuple[int, tuple[int, ...]]]


def read(batch: Batch, reference: Reference) -> list[Result] | Failure:
    """Have all variants read a reference (:func:`harness.engine.teacher_forcing.read_all`)."""
    if not reference.parts:
        broken = reference.finish_reason == "nan"
        return (
            Failure("nan", BROKEN) if broken else Failure("error", "the context is empty, so nothing can be repeated")
        )
    parts = [read_all(batch, *part) for part in reference.parts]
    full, asked = [part.full for part in parts], [len(part.question) for part in reference.parts]
    by_variant = zip(*(part.variants for part in parts), strict=True)
    return [
        Result(outcome(full, own), [(count, one.kept) for count, one in zip(asked, own, strict=True)])
        for own in by_variant
    ]


def outcome(full: Sequence[Reading], own: Sequence[Reading]) -> dict[str, Any]:
    """Score and metrics of one variant over the parts of a reference, or the status and reason of its failure.

    The 95th percentile is that of the sample's tokens, by linear interpolation.
    """
    failure = next((one.failure for one in own if one.failure is not None), None)
    bound = {"bound_by": "protection"} if any(one.bound for one in own) else {}
    if failure is not None:
        return {**bound, **failure._asdict()}
    kl, nll = (torch.cat([getattr(one, name) for one in own]) for name in ("kl", "nll"))
    if torch.isnan(kl).any() or torch.isnan(nll).any():
        return {"status": "nan", "reason": BROKEN}
    top1 = float(torch.cat([one.same for one in own]).double().mean())
    mean, of_full = float(nll.mean()), float(torch.cat([one.nll for one in full]).mean())
    metrics = {
        "kl_mean": float(kl.mean()),
        "kl_p95": float(kl.quantile(0.95)),
        "top1": top1,
        "ppl_ratio": min(math.exp(min(mean - of_full, 700.0)), MOST_FIGURE),
        "nll": mean,
        "nll_full": of_full,
    }
    return {**bound, "score": 100 * top1, "metrics": metrics}
