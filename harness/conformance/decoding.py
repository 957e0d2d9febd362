"""Checks of a method while it decodes, and of one question after another."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from harness.conformance.fixtures import Bench, named, some_ids
from harness.conformance.scoring import overrides, steps_and_scores, well_formed
from harness.conformance.suite import Skip, check, expect
from harness.engine.decode import Question, decode
from harness.engine.eviction import Evictor
from harness.engine.masked_decode import MaskedRun
from harness.evaluation.pruned_context import PrunedContext
from methods.base import Step

#: answer tokens of the eviction check: more than any other check feeds
LONG = 16
ADVICE = "the engine hands the old scores back to score_step: keep nothing else, and draw from step.context_seed alone"


def _decodes(bench: Bench) -> None:
    if not bench.decoding:
        raise Skip(f"prunes in phase {' and '.join(bench.cls.phases)} only")


@check("while decoding: score_new gives finite float32 [V, H, n], score_step [V, H, C]", "scores", "declarations")
def step_scores(bench: Bench) -> None:
    _decodes(bench)
    method = bench.method
    with torch.inference_mode():
        for step, old in steps_and_scores(bench):
            variants, heads, new = step.keys.shape[:3]
            where = f"layer {step.layer}, {variants} variants, {old.shape[-1]} old pairs, {new} new"
            if overrides(method, "score_new"):
                well_formed(method.score_new(step), (variants, heads, new), f"score_new, {where} ([V, H, n])")
            found = method.score_step(step, old)
            well_formed(found, (variants, heads, old.shape[-1] + new), f"score_step, {where} ([V, H, C])")


@check("a variant's scores while decoding do not depend on the others in the batch", "questions")
def step_rows(bench: Bench) -> None:
    """Variants of a batch do not see each other."""
    _decodes(bench)
    with torch.inference_mode():
        for step, old in steps_and_scores(bench):
            together = bench.method.score_step(step, old)
            for row in range(len(old)):
                alone = bench.method.score_step(_only(step, row), old[row : row + 1])[0]
                apart = float((alone - together[row]).abs().max())
                scale = float(together[row].abs().max())
                expect(
                    apart <= 1e-5 * max(1.0, scale),
                    f"score_step, layer {step.layer}: scores of variant {row} differ by {apart:.2e} alone and among "
                    f"{len(old)} variants; the first axis is the variants', and no variant may see another",
                )


def _only(step: Step, row: int) -> Step:
    """The step as one of its variants shows it."""
    parts: dict[str, Any] = {
        name: value[row : row + 1] if isinstance(value, Tensor) and value.numel() and name != "positions" else value
        for name, value in ((one.name, getattr(step, one.name)) for one in fields(step) if one.init)
    }
    return Step(**parts)


@check(
    "two questions on one context give the tokens of two separate runs, in each phase",
    "contexts_apart",
    "dtypes",
    "read_only",
)
def questions(bench: Bench) -> None:
    """Two questions on one context are two runs of one question each."""
    lm = bench.lm(bench.double)
    asked = [Question(some_ids(8, seed), 4) for seed in (21, 22)]
    apart = [decode(bench.run(bench.variants(lm), lm, bench.context).batch, question) for question in asked]
    ran = bench.run(bench.variants(lm), lm, bench.context)
    for number, question in enumerate(asked):
        for one, after, alone in zip(ran.planned, decode(ran.batch, question), apart[number], strict=True):
            expect(
                (alone.ids, alone.kept) == (after.ids, after.kept),
                f"{named(one)}: alone on its context question {number + 1} is answered {alone.ids} (pairs seen "
                f"{alone.kept}); after another question on the context {after.ids} ({after.kept}). Something is kept "
                f"between questions; {ADVICE}",
            )
    if bench.decoding:
        _steps_repeat(bench)


def _steps_repeat(bench: Bench) -> None:
    """What a step scores does not depend on the steps that an instance has seen before."""
    with torch.inference_mode():
        for step, old in steps_and_scores(bench):
            used, fresh = bench.method.score_step(step, old), bench.fresh().score_step(step, old)
            expect(
                torch.equal(used, fresh),
                f"score_step, layer {step.layer}: an instance that has seen other steps and a fresh one score the same "
                f"step differently; {ADVICE}",
            )


@check("while decoding: gone is gone, no head sees more than its capacity, protected pairs stay", "read_only")
def eviction(bench: Bench) -> None:
    """What is gone stays gone, no head sees more than its capacity, what is protected stays."""
    _decodes(bench)
    lm = bench.lm()
    planned = [one for one in bench.variants(lm) if one.variant.phase != "prefill"]
    _evict(bench.run(planned, lm, bench.context))


def _evict(ran: PrunedContext) -> None:
    fed = [some_ids(12, seed=31), *((token,) for token in some_ids(LONG, seed=32))]
    run = MaskedRun(ran.batch, 12 + LONG)
    (evictor,) = run.evictors
    before = list(ran.masks.keep.unbind(dim=1))
    with run.engaged():
        for count, ids in enumerate(fed, 1):
            run.advance(torch.tensor([ids]).expand(len(ran.planned), -1))
            for layer, then in enumerate(before):
                for row, one in enumerate(ran.planned):
                    where = f"{named(one)}, forward {count}, layer {layer}"
                    mask = evictor.keep[layer][row]
                    back = mask[:, : then.shape[-1]] & ~then[row]
                    expect(not back.any(), f"{where}: {int(back.sum())} pairs that were gone are back")
                    _holds(evictor, layer, row, where)
            before = list(evictor.keep)


def _holds(evictor: Evictor, layer: int, row: int, where: str) -> None:
    policy, mask, scores = evictor.policies[row], evictor.keep[layer][row], evictor.scores[layer][row]
    cached = mask.shape[-1]
    expect(bool(torch.isfinite(scores).all()), f"{where}: scores of {cached} pairs are no longer finite")
    fixed = policy.protection.mask(cached, evictor.prefix)
    gone = fixed & ~mask.all(dim=0)
    expect(not gone.any(), f"{where}: protected pairs {gone.nonzero().flatten().tolist()[:5]} are gone")
    if policy.threshold is None:
        capacity = max(policy.capacity(cached), int(fixed.sum()))
        most = int(mask.sum(dim=-1).max())
        expect(most <= capacity, f"{where}: a head sees {most} pairs, its capacity is {capacity}")
