"""Checks of what is left of a context, and of the answers from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import torch
from torch import Tensor

from harness.config.run_config import RunConfig
from harness.config.variants import Planned
from harness.conformance import models
from harness.conformance.fixtures import PREFIX, Bench, context_of, left_behind, named, some_ids
from harness.conformance.reference_cache import GatheredRun
from harness.conformance.suite import Skip, check, expect
from harness.engine.adapter import LanguageModel
from harness.engine.decode import Question, decode
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from harness.evaluation.pruned_context import PrunedContext
from methods.base import Protection

REMOVED = (Decimal("0.25"), Decimal("0.5"), Decimal("0.75"), Decimal("0.875"))
#: the methods of the batch that a method is tried in: shared parts of observations, extra passes, decode-time state
COMPANY = ("random", "knorm", "h2o", "snapkv", "kvzip", "kvzip_plus")
QUESTION = Question(some_ids(6, seed=7), 3)


@check(
    "measured removed is within one pair per head of the level, for each budget; protected pairs stay",
    "scores",
    "declarations",
)
def levels(bench: Bench) -> None:
    _mechanism(bench)
    budgets = [budget for budget in bench.cls.budgets if budget != "threshold"]
    if not budgets:
        raise Skip("takes the threshold budget alone")
    lm = bench.lm()
    total = bench.length(bench.protection)
    context = context_of(total - PREFIX)
    grids = [bench.grid(budget, own=True, removed=REMOVED, keep_tokens=(total // 2, total + 5)) for budget in budgets]
    ran = bench.run(bench.plan(grids, lm), lm, context)
    for index, one in enumerate(ran.planned):
        _level(bench, ran, index, one, total)


def _mechanism(bench: Bench) -> None:
    """What the method itself always keeps, and its per-layer numbers, fit the number that a head keeps."""
    method, layers = bench.method, bench.info.layers
    for total in (1, 7, 64, 200, 1000):
        for kept in sorted({1, total // 8, total // 2, total - 1, total} - {0}):
            own = method.mechanism_for(kept)
            expect(isinstance(own, Protection), f"mechanism_for({kept}) must return a Protection, got {own!r}")
            count = int(own.mask(total, PREFIX).sum())
            fixed = int(method.mechanism_for(0).mask(total, PREFIX).sum())
            expect(
                count <= max(kept, fixed),
                f"mechanism_for({kept}) protects {count} of {total} pairs, more than the {kept} that a head keeps",
            )
            if "head" in bench.cls.budgets:
                _by_layer(bench, kept, total, layers)


def _by_layer(bench: Bench, kept: int, total: int, layers: int) -> None:
    found = bench.method.kept_by_layer(kept, total, layers)
    call = f"kept_by_layer({kept}, {total}, {layers})"
    expect(
        len(found) == layers and all(isinstance(n, int) and 0 <= n <= total for n in found),
        f"{call} must give {layers} whole numbers from 0 to {total}, got {found}",
    )
    expect(abs(sum(found) / layers - kept) <= 1, f"{call} must have the mean {kept} within one, got {found}")


def _level(bench: Bench, ran: PrunedContext, index: int, one: Planned, total: int) -> None:
    keep, variant = ran.masks.keep[index], one.variant
    asked = _number(variant.level_kind, variant.level, total)
    kept = keep.sum(dim=-1).double()
    where = f"{variant.label}, {total} cached pairs"
    protection = variant.protection() | one.method.mechanism_for(int(asked))
    protected = protection.mask(total, PREFIX)
    expect(bool(keep[:, :, protected].all()), f"{where}: protected pairs are gone")
    if ran.masks.bound[index]:
        return
    expect(
        abs(float(kept.mean()) - float(asked)) <= 1,
        f"{where}: expected {float(asked):g} pairs kept in a head on average (within one), got {float(kept.mean()):g}; "
        f"by layer {[round(float(layer), 1) for layer in kept.mean(dim=-1)]}",
    )
    if variant.budget == "head":
        expect(
            bool((kept == kept[:, :1]).all()),
            f"{where}: under the head budget all heads of a layer keep the same number, got {kept.int().tolist()}",
        )


def _number(kind: str, level: float | None, total: int) -> Decimal:
    """Pairs that a head is to keep, before it is rounded."""
    assert level is not None
    return min(Decimal(int(level)), Decimal(total)) if kind == "keep_tokens" else total * (1 - Decimal(str(level)))


@check("threshold -inf removes nothing, inf leaves the protection alone", "scores", "declarations")
def thresholds(bench: Bench) -> None:
    if "threshold" not in bench.cls.budgets:
        raise Skip("does not take the threshold budget")
    lm = bench.lm()
    total = bench.length(bench.protection)
    grid = bench.grid("threshold", own=True, threshold=(float("-inf"), float("inf")))
    ran = bench.run(bench.plan([grid], lm), lm, context_of(total - PREFIX))
    for one, keep in zip(ran.planned, ran.masks.keep, strict=True):
        assert one.variant.level is not None
        protected = (one.variant.protection() | one.method.mechanism_for(total)).mask(total, PREFIX)
        expected = protected if one.variant.level > 0 else torch.ones_like(protected)
        expect(
            bool((keep == expected).all()),
            f"{one.variant.label}: expected {int(expected.sum())} of {total} pairs kept in every head "
            f"({'protection alone' if one.variant.level > 0 else 'all of them'}), got {keep.sum(dim=-1).tolist()}",
        )


@check("masked decoding equals caches whose pairs are really gone, head by head (float64, 1e-9)", "dtypes", "read_only")
def gathered(bench: Bench) -> None:
    """The masked engine against caches whose pairs are really gone, in every phase and budget; while decoding, pairs
    go from both after each forward."""
    lm = bench.lm(bench.double)
    ran = bench.run(bench.variants(lm), lm, bench.context)
    expect(not ran.masks.failed, bench.fails(ran))
    for one, keep in zip(ran.planned, ran.masks.keep, strict=True):
        if one.variant.phase != "decode":
            expect(not keep.all(), f"{one.variant.label}: nothing was removed, so nothing can be compared")
    _compare(bench, lm, ran)


def _compare(bench: Bench, lm: LanguageModel, ran: PrunedContext) -> None:
    fed = (some_ids(14, seed=11), (3,), (77,), (14,))
    keep = ran.masks.keep
    masked = MaskedRun(replace(ran.batch, positions=[]), 17)  # the reference's pairs stay at their original positions
    gathered = GatheredRun.of(lm, ran.scored.prefix, keep)
    for count, ids in enumerate(fed, 1):
        with masked.engaged():
            found = lm.logits(masked.advance(torch.tensor([ids]).expand(len(keep), -1))).log_softmax(dim=-1)
        differences = (found - gathered.logprobs(ids)).abs().amax(dim=(1, 2)).tolist()
        for row, (one, apart) in enumerate(zip(ran.planned, differences, strict=True)):
            lengths = gathered.lengths(row)
            expect(
                apart <= bench.tolerance,
                f"{named(one)}: log-probabilities after forward {count} differ by {apart:.1e} from those of caches "
                f"whose pairs are really gone ({min(lengths)} to {max(lengths)} pairs a head)",
            )
        for evictor in masked.evictors:
            for own, row in enumerate(evictor.rows):
                gathered.drop(row, [layer[own] for layer in evictor.keep])


@check(
    "scores, masks and tokens are the same alone and in the batch of other methods, and theirs too",
    "questions",
    "step_rows",
)
def together(bench: Bench) -> None:
    """Alone, and in the batch of other methods: scores, masks and tokens of all of them."""
    lm, context = bench.lm(bench.double), bench.context
    own, others = bench.variants(lm), _company(bench, lm)
    alone, without = bench.run(own, lm, context), bench.run(others, lm, context)
    for mixed in (own + others, others + own):
        both = bench.run(mixed, lm, context)
        _equal_in(alone, both, f"beside {', '.join(COMPANY)}")
        _equal_in(without, both, f"beside {bench.name}")
    _same_tokens(alone, both)


def _company(bench: Bench, lm: LanguageModel) -> list[Planned]:
    """Variants of other methods in the phases of the method, in each those that work in it."""
    names = tuple(name for name in COMPANY if name != bench.name)
    grids = [RunConfig(method=names, budget=("head",), keep_tokens=(20,), phase=phase) for phase in bench.cls.phases]
    return bench.plan(grids, lm)


def _equal_in(one: PrunedContext, both: PrunedContext, where: str) -> None:
    places = {planned.variant: index for index, planned in enumerate(both.planned)}
    for method, scores in one.scored.scores.items():
        expect(
            torch.equal(scores, both.scored.scores[method]),
            f"scores of {method.name} differ alone and {where}; what seen.shared(...) returns is shared, so copy it "
            "before you change it",
        )
    for index, planned in enumerate(one.planned):
        other = both.masks.keep[places[planned.variant]]
        expect(
            torch.equal(one.masks.keep[index], other),
            f"{named(planned)}: the mask is another one alone and {where}",
        )


def _same_tokens(alone: PrunedContext, both: PrunedContext) -> None:
    single = decode(alone.batch, QUESTION)
    mixed = dict(zip((one.variant for one in both.planned), decode(both.batch, QUESTION), strict=True))
    for planned, answer in zip(alone.planned, single, strict=True):
        other = mixed[planned.variant]
        expect(
            (answer.ids, answer.kept) == (other.ids, other.kept),
            f"{named(planned)}: alone it answers {answer.ids} (pairs seen {answer.kept}), beside {', '.join(COMPANY)} "
            f"it answers {other.ids} ({other.kept})",
        )


@check("no hook, patch or changed weight is left; the prefill is the same unwatched", "dtypes", "read_only")
def model_untouched(bench: Bench) -> None:
    """Against a model that the method has never met, after everything else that ran on the bench's."""
    lm = bench.lm()
    plain, fresh = prefill(lm, bench.context).prefix, models.build(bench.config, bench.shape)
    ran = bench.run(bench.variants(lm), lm, bench.context)
    decode(ran.batch, QUESTION)
    seen = ran.scored.prefix
    for name, one, other in (
        ("keys", plain.keys, seen.keys),
        ("values", plain.values, seen.values),
        ("last hidden states", [plain.last_hidden], [seen.last_hidden]),
    ):
        expect(_all_equal(one, other), f"{name} of the prefill differ with and without the method watching")
    for model in bench.models:
        hooks = _hooks(model)
        expect(not hooks, f"{hooks} hooks are left on {model.name}; a method sees an Observation and needs no hook")
    expect(
        lm.config._attn_implementation == fresh.config._attn_implementation,
        f"the model's attention is left as {lm.config._attn_implementation!r}",
    )
    expect(_all_equal(list(fresh.model.parameters()), list(lm.model.parameters())), "weights of the model have changed")
    left = left_behind(bench)
    expect(not left, f"changed in this process and left so: {', '.join(left)}")
    ids = torch.tensor([bench.context.ids])
    with torch.inference_mode():
        logits = [model.model(ids, use_cache=False).logits for model in (fresh, lm)]
    expect(torch.equal(*logits), "the unpatched model gives other logits than one that the method never met")


def _hooks(lm: LanguageModel) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in lm.model.modules() for kind in kinds)


def _all_equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
