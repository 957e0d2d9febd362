"""Checks of the scores after the prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from harness.config.run_config import RunConfig
from harness.conformance.fixtures import PREFIX, Bench, context_of, unshared
from harness.conformance.suite import Skip, check, expect
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.decode import Question, decode
from harness.evaluation.pruned_context import PrunedContext
from methods.base import Method, Observation, Protection, Step

QUESTION = Question((7, 8), 2)


def well_formed(scores: object, shape: Sequence[int], where: str) -> None:
    """Fails unless ``scores`` is a finite float32 tensor of a shape."""
    expect(isinstance(scores, Tensor), f"{where}: expected a tensor {list(shape)}, got {type(scores).__name__}")
    assert isinstance(scores, Tensor)
    expect(
        list(scores.shape) == list(shape),
        f"{where}: expected the shape {list(shape)}, got {list(scores.shape)}",
    )
    expect(
        scores.dtype == torch.float32,
        f"{where}: expected float32, got {str(scores.dtype).removeprefix('torch.')}; end with .float()",
    )
    bad = ~torch.isfinite(scores)
    if bool(bad.any()):
        place = tuple(bad.nonzero()[0].tolist())
        value = float(scores[place])
        expect(False, f"{where}: expected finite scores, got {value} at {list(place)} ({int(bad.sum())} such values)")


def _scored(bench: Bench, lm: LanguageModel, context: Context, what: str) -> list[Tensor]:
    """Scores of every layer, each checked."""
    found = bench.scores(bench.method, context, lm)
    for layer, scores in enumerate(found):
        where = f"score on {what}, layer {layer}, {len(context.ids)} cached pairs"
        well_formed(scores, (lm.info.kv_heads, len(context.ids)), f"{where} ([H, T])")
    return found


@check("finite float32 [H, T] in every layer; 9 query and 3 KV heads", "bind", "passes")
def scores(bench: Bench) -> None:
    """The contexts must not be square: T is neither H, d nor D."""
    lm = bench.lm()
    found = _scored(bench, lm, bench.context, _named(lm))
    expect(len(found) == lm.info.layers, f"expected scores of {lm.info.layers} layers, got {len(found)}")


def _named(lm: LanguageModel) -> str:
    return f"{lm.name} ({lm.info.query_heads} query, {lm.info.kv_heads} KV heads)"


@check("extra passes have spans within the context; score_pass gives finite float32 [H, m]", "bind")
def passes(bench: Bench) -> None:
    lm, context = bench.lm(), bench.context
    cached = len(context.ids)
    asked = bench.method.passes(cached, context.prefix)
    if not asked:
        raise Skip("asks for no extra pass")
    expect(asked == bench.fresh().passes(cached, context.prefix), "a second call of passes gives other passes")
    for extra in asked:
        for name in ("target", "columns", "lead_in"):
            span = getattr(extra, name)
            if isinstance(span, tuple):
                start, stop = span
                expect(
                    0 <= start < stop <= cached,
                    f"passes({cached}, {context.prefix}): {name} {span} is not a span within the {cached} cached pairs",
                )
    recorder = bench.shown(lm, context, bench.method)
    with torch.inference_mode():
        for run, seen in recorder.in_passes:
            start, stop = run.columns
            found = bench.method.score_pass(unshared(seen), run)
            well_formed(
                found, (lm.info.kv_heads, stop - start), f"score_pass of {run.target}, layer {seen.layer} ([H, m])"
            )


@check("nothing that a method is shown is changed in place", "step_scores")
def read_only(bench: Bench) -> None:
    recorder = bench.shown(bench.lm(), bench.context, bench.method)
    with torch.no_grad():
        for seen in map(unshared, recorder.shown):
            _unchanged(seen, "score", partial(bench.method.score, seen))
        for run, seen in recorder.in_passes:
            own = unshared(seen)
            _unchanged(own, "score_pass", partial(bench.method.score_pass, own, run))
        if bench.decoding:
            for step, old in steps_and_scores(bench):
                before = old.clone()
                _unchanged(step, "score_step", partial(bench.method.score_step, step, old))
                expect(torch.equal(before, old), "score_step changed the old scores that it was given, in place")


def _unchanged(seen: Observation | Step, function: str, call: Callable[[], object]) -> None:
    before = {name: value.clone() for name, value in vars(seen).items() if isinstance(value, Tensor)}
    project = seen.project if isinstance(seen, Observation) else None
    weights = project().clone() if project is not None else None
    call()
    for name, value in before.items():
        now = getattr(seen, name)
        expect(
            torch.equal(now, value),
            f"{function} changed {name} of what it was shown, in place (layer {seen.layer}); "
            "work on a copy, since the cache and other methods read the same tensor",
        )
    if project is not None and weights is not None:
        expect(torch.equal(project(), weights), f"{function} changed the model's output projection, in place")
    expect(not seen.written(), f"{function} changed what it shares with other methods, in place; work on a copy")


def steps_and_scores(bench: Bench) -> list[tuple[Step, Tensor]]:
    """The steps of a question and two answer tokens, each with well-formed scores of the pairs before it."""
    generator = torch.Generator().manual_seed(3)
    found = []
    for step in bench.steps:
        cached = int(step.positions[0])
        found.append((step, torch.rand(*step.keys.shape[:2], cached, generator=generator)))
    return found


@check("the same context again, and from a fresh instance: the same scores", "scores")
def deterministic(bench: Bench) -> None:
    first = bench.scores(bench.method, bench.context)
    for who, other in (("the same instance", bench.method), ("a fresh instance", bench.fresh())):
        _same(first, bench.scores(other, bench.context), f"{who} scored the same context again")


def _same(one: Sequence[Tensor], other: Sequence[Tensor], what: str) -> None:
    for layer, (left, right) in enumerate(zip(one, other, strict=True)):
        differing = left != right
        if bool(differing.any()):
            place = tuple(differing.nonzero()[0].tolist())
            expect(
                False,
                f"{what}: in layer {layer} {int(differing.sum())} of {left.numel()} scores differ, at {list(place)} "
                f"{float(left[place])!r} became {float(right[place])!r}; draw numbers from seen.context_seed alone "
                "and keep nothing between calls",
            )


@check("an instance that has scored another context gives the same scores as a fresh one", "deterministic")
def contexts_apart(bench: Bench) -> None:
    tokens = len(bench.context.ids) - PREFIX
    other = context_of(tokens, seed=5)
    used, fresh = bench.fresh(), bench.fresh()
    bench.scores(used, bench.context)
    _same(
        bench.scores(fresh, other),
        bench.scores(used, other),
        "a context scored by a fresh instance, and by one that had scored another context of the same length before",
    )


@check(
    "one token, no token beyond the template, and lengths about the method's own window run to an answer",
    "read_only",
)
def short_contexts(bench: Bench) -> None:
    """Contexts from the empty one to those just longer than what the method looks at or keeps."""
    lm = bench.lm()
    planned = bench.plan([*_lowest(bench)], lm)
    for total, prefix in _short(bench.method):
        context = context_of(total - prefix, prefix=prefix)
        _scored(bench, lm, context, f"{_named(lm)}, {prefix} of them the template's")
        _answered(bench, bench.run(planned, lm, context), f"{total} cached pairs, {prefix} of them the template's")


def _lowest(bench: Bench) -> Iterator[RunConfig]:
    """Every phase and budget at its strongest level, with the published protection and with a small one."""
    for phase in bench.cls.phases:
        for budget in bench.cls.budgets:
            level = {"threshold": (1e30,)} if budget == "threshold" else {"keep_tokens": (1,)}
            if phase == "prefill" or budget in ("head", "threshold"):
                for own in (True, False):
                    yield bench.grid(budget, phase, own, **level)


def _answered(bench: Bench, ran: PrunedContext, where: str) -> None:
    """Every variant runs to an answer of its full length."""
    expect(not ran.masks.failed, f"{where}: {bench.fails(ran)}")
    for one, answer in zip(ran.planned, decode(ran.batch, QUESTION), strict=True):
        expect(
            len(answer.ids) == QUESTION.max_new_tokens,
            f"{where}: {one.variant.label} gave {len(answer.ids)} of {QUESTION.max_new_tokens} tokens and ended "
            f"with {answer.finish_reason!r}",
        )


def _short(method: Method) -> list[tuple[int, int]]:
    """Cached lengths and how many of the pairs are the template's: a single token, an empty context after a template,
    and lengths on either side of each border of the method."""
    mechanism = method.mechanism_for(0)
    own = method.protects() | mechanism
    borders = {mechanism.window, own.window, own.sinks + own.window}
    longer = {edge + more for edge in borders if 0 < edge < 512 for more in (-1, 0, 1)}
    return [
        (1, 0),
        (2, 0),
        (PREFIX, PREFIX),
        (PREFIX + 1, PREFIX),
        *((n, PREFIX) for n in sorted(longer) if n > PREFIX),
    ]


@check("scores of bfloat16 and float64 models are finite float32 too", "step_scores")
def dtypes(bench: Bench) -> None:
    for dtype in {torch.bfloat16, bench.double}:
        lm, name = bench.lm(dtype), str(dtype).removeprefix("torch.")
        _scored(bench, lm, bench.context, f"{lm.name} in {name}")
        if bench.decoding:
            with torch.inference_mode():
                for step, old in steps_and_scores(bench):
                    _step_in(bench.method, step, old, dtype, name)


def _step_in(method: Method, step: Step, old: Tensor, dtype: torch.dtype, name: str) -> None:
    parts = {part: getattr(step, part).to(dtype) for part in ("hidden", "queries", "keys", "values")}
    cast = replace(step, **parts)
    where = f"in {name}, layer {step.layer}"
    if overrides(method, "score_new"):
        well_formed(method.score_new(cast), step.keys.shape[:3], f"score_new {where} ([V, H, n])")
    shape = (*old.shape[:2], old.shape[-1] + step.new)
    well_formed(method.score_step(cast, old), shape, f"score_step {where} ([V, H, C])")


def overrides(method: Method, name: str) -> bool:
    return getattr(type(method), name) is not getattr(Method, name)


@check("layers with a sliding window are left out; the others are scored and pruned", "read_only")
def sliding_windows(bench: Bench) -> None:
    lm = bench.sliding()
    if lm is None:
        raise Skip(f"the method is not made for another model than one of the shape of {bench.shape}")
    context = context_of(bench.length(bench.method.mechanism_for(0) | Protection(2, 8)) - PREFIX)
    found = _scored(bench, lm, context, f"{lm.name} (2 of 4 layers with a sliding window)")
    expect(len(found) == 2, f"expected scores of the 2 layers that can be pruned, got {len(found)}")
    ran = bench.run(bench.plan([*_lowest(bench)], lm), lm, context)
    _answered(bench, ran, lm.name)
