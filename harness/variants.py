"""Variants: what the user asked for, resolved into settings that each say everything that changes an answer."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.engine.prefill import Failure, Scored
from harness.errors import HarnessError
from methods import registry
from methods.base import Method, MethodError, ModelInfo, Protection, Unsupported
from methods.budgets import BUDGETS, Ranking, number_kept

DEFAULT_REMOVED = (Decimal("0.25"), Decimal("0.5"), Decimal("0.75"))


@dataclass(frozen=True)
class Variant:
    """One fully resolved setting. Equal variants give equal answers; each field is a column of the results.

    level_kind   ``removed`` (fraction), ``keep_tokens`` (pairs a head), ``threshold`` (tau) or ``none`` (the control)
    sinks        protected first pairs, or ``prefix``: the whole template prefix
    options      the method's options as canonical JSON
    """

    method: str
    budget: str = "none"
    level_kind: str = "none"
    level: float | None = None
    phase: str = "prefill"
    window: int = 0
    sinks: int | str = 0
    positions: str = "original"
    engine: str = "masked"
    attention_during_prefill: str = "full"
    kv_bits: int | None = None
    query_mode: str = "agnostic"
    thinking: bool = False
    options: str = "{}"

    @property
    def label(self) -> str:
        """A short readable name, unique within a run: what differs from the method's defaults is spelled out."""
        if self.level_kind == "none":
            return self.method if self.query_mode == "agnostic" else f"{self.method} aware"
        cls = registry.get(self.method)
        mark = {"removed": "", "keep_tokens": "keep=", "threshold": "tau="}[self.level_kind]
        parts = [self.method, self.budget, mark + repr(self.level).removesuffix(".0")]  # all digits, so never twice
        method = build_from_options(self.method, self.options)
        own = method.protects()
        if self.window != own.window:
            parts.append(f"window={self.window}")
        if self.sinks != _sinks(own):
            parts.append(f"sinks={self.sinks}")
        plain = cls().options()
        parts += [f"{name}={value}" for name, value in json.loads(self.options).items() if plain[name] != value]
        return " ".join(parts + ([] if self.query_mode == "agnostic" else [self.query_mode]))

    def fields(self) -> dict[str, Any]:
        """The variant as columns, its label first."""
        columns = {"variant": self.label, **asdict(self)}
        if self.level is not None and math.isinf(self.level):  # JSON has no infinity
            columns["level"] = str(self.level)
        return columns

    def protection(self) -> Protection:
        """What this variant may not remove, the method's own mechanism included."""
        prefix = self.sinks == "prefix"
        asked = Protection(0 if prefix else int(self.sinks), self.window, prefix)
        return asked | registry.get(self.method).mechanism


def build_from_options(name: str, options: str) -> Method:
    """A method instance from a variant's canonical options."""
    return registry.get(name)(**json.loads(options))


@dataclass(frozen=True)
class Grid:
    """What was asked for, as the command line says it; empty tuples mean the defaults."""

    methods: tuple[str, ...]
    budgets: tuple[str, ...] = ()
    removed: tuple[Decimal, ...] = ()
    thresholds: tuple[float, ...] = ()
    keep_tokens: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    sinks: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    phase: str = "prefill"
    query_aware: bool = False
    compat: str = ""


class Planned(NamedTuple):
    """A variant, the bound method that scores it, and the removed fraction asked for (threshold only)."""

    variant: Variant
    method: Method
    requested_removed: float | None


@dataclass
class Plan:
    """All variants of a run, the control first, and what could not be planned with the reasons."""

    planned: list[Planned]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def methods(self) -> list[Method]:
        """The methods that score, each once."""
        return list(dict.fromkeys(p.method for p in self.planned if not p.method.is_control))


def parse_removed(text: str) -> Decimal:
    """A removed fraction as an exact decimal. Outside [0, 1) or no number: :class:`HarnessError`."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise HarnessError(f"--removed must be a number, at least 0 and less than 1, got {text!r}") from None
    if not (value.is_finite() and value >= 0 and float(value) < 1):
        raise HarnessError(f"--removed must be at least 0 and less than 1, got {text}")
    return abs(value)  # no -0


def parse_threshold(text: str) -> float:
    """A threshold; infinite values are allowed, NaN is not."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value:
        raise HarnessError(f"--threshold must be a number such as -4 or -5.5, got {text!r}")
    return value


def plan(grid: Grid, info: ModelInfo) -> Plan:
    """Resolve a grid for a model. Methods that cannot do what was asked are skipped with a note when others remain;
    with none left it is an error. Methods are bound here, so a missing surrogate shows before the model loads."""
    _check(grid, info)
    query_mode = "aware" if grid.query_aware else "agnostic"
    control = registry.build("full", {})
    planned = [Planned(Variant("full", phase=grid.phase, query_mode=query_mode), control, None)]
    skipped: dict[str, str] = {}
    for name in _names(grid, info):
        try:
            instances = list(_instances(name, grid, info))
        except MethodError as error:
            skipped[name] = _note(error, grid)
            continue
        for budget in grid.budgets or (registry.get(name).default_budget,):
            try:
                planned += list(_plan_method(instances, budget, grid, info, query_mode))
            except MethodError as error:
                skipped[name if len(grid.budgets) < 2 else f"{name} {budget}"] = _note(error, grid)
    if len(planned) == 1 and skipped:
        raise HarnessError("; ".join(f"{name}: {reason}" for name, reason in skipped.items()))
    _check_used(grid, planned)
    unique: dict[Variant, Planned] = {}
    for one in planned:
        unique.setdefault(one.variant, one)
    return Plan(list(unique.values()), skipped)


def _note(error: MethodError, grid: Grid) -> str:
    """Why something is skipped; raised instead where the method was named and it is no mere combination."""
    if "all" not in grid.methods and not isinstance(error, Unsupported):
        raise error
    return str(error)


def _check_used(grid: Grid, planned: Sequence[Planned]) -> None:
    """A level flag that no variant takes is a mistake, since defaults would run in its place."""
    kinds = {p.variant.level_kind for p in planned if not p.method.is_control}
    if kinds and grid.thresholds and "threshold" not in kinds:
        raise HarnessError("--threshold is for the threshold budget, which no method here has; add --budget threshold")
    if kinds and grid.keep_tokens and "keep_tokens" not in kinds:
        raise HarnessError("--keep-tokens never applies to the threshold budget; add --budget head, layer or global")


def _check(grid: Grid, info: ModelInfo) -> None:
    for budget in grid.budgets:
        if budget not in BUDGETS:
            raise HarnessError(registry.unknown("budget", budget, list(BUDGETS)))
    if grid.phase != "prefill":
        raise HarnessError(f"--phase {grid.phase!r} is not available; use prefill")
    for name in grid.methods:
        if name != "all" and name not in registry.aliases():
            registry.get(name)
    for option in map(option_of, grid.options):
        name = registry.resolve(option.method, info)
        with _failing_as(name):
            registry.build(name, {option.name: option.value})
    if info.layers == 0 and any(name != "full" for name in grid.methods):
        raise HarnessError(
            f"every layer of model {info.name!r} has a sliding window, so nothing can be pruned; use --method full"
        )


def _names(grid: Grid, info: ModelInfo) -> list[str]:
    """Method names without the control and aliases, in the order asked for."""
    asked = [*registry.names()] if "all" in grid.methods else list(grid.methods)
    resolved = dict.fromkeys(registry.resolve(name, info) for name in asked)
    return [name for name in resolved if not registry.get(name).is_control]


@contextmanager
def _failing_as(name: str) -> Iterator[None]:
    """What foreign code raises while a method is made ready is that method's fault, and no other's."""
    try:
        yield
    except MethodError:
        raise
    except Exception as error:
        raise MethodError(f"method {name!r} failed before the run: {type(error).__name__}: {error}") from error


class Option(NamedTuple):
    method: str
    name: str
    value: str


def option_of(text: str) -> Option:
    """``METHOD.NAME=VALUE`` in its parts; the method may be an alias."""
    left, equals, value = text.partition("=")
    method, dot, name = left.partition(".")
    if not (equals and dot and name):
        raise HarnessError(f"--option must be METHOD.NAME=VALUE, got {text!r}; see `python -m harness methods`")
    if method not in registry.aliases():
        registry.get(method)
    return Option(method, name, value)


def _instances(name: str, grid: Grid, info: ModelInfo) -> Iterator[Method]:
    """One bound instance for each combination of the values given to each option."""
    values: dict[str, list[str]] = {}
    for option in map(option_of, grid.options):
        if registry.resolve(option.method, info) == name:
            values.setdefault(option.name, []).append(option.value)
    if grid.compat and "compat" in registry.build(name, {}).options():
        values.setdefault("compat", [grid.compat])
    for chosen in itertools.product(*values.values()):
        with _failing_as(name):
            yield registry.build(name, dict(zip(values, chosen, strict=True))).bind(info)


def _plan_method(
    instances: Sequence[Method], budget: str, grid: Grid, info: ModelInfo, query_mode: str
) -> Iterator[Planned]:
    for method in instances:
        if grid.phase not in method.phases:
            raise Unsupported(f"{method.name} prunes in phase {', '.join(method.phases)} only")
        if budget not in method.budgets:
            raise Unsupported(
                f"{method.name} does not work with budget {budget!r}; it takes {', '.join(method.budgets)}"
            )
        own = method.protects()
        levels = list(_levels(method, budget, grid, info))
        for window, sinks in itertools.product(grid.windows or (own.window,), grid.sinks or (_sinks(own),)):
            for kind, level, requested in levels:
                variant = Variant(
                    method.name,
                    budget,
                    kind,
                    level,
                    grid.phase,
                    window,
                    sinks,
                    query_mode=query_mode,
                    options=json.dumps(method.options(), sort_keys=True),
                )
                yield Planned(variant, method, requested)


def _levels(method: Method, budget: str, grid: Grid, info: ModelInfo) -> Iterator[tuple[str, float, float | None]]:
    """Level kind, level and requested fraction of each level that applies to the budget."""
    if budget != "threshold":
        removed = grid.removed or (() if grid.keep_tokens else DEFAULT_REMOVED)
        yield from (("removed", float(value), None) for value in removed)
        yield from (("keep_tokens", float(count), None) for count in grid.keep_tokens)
        return
    yield from (("threshold", tau, None) for tau in grid.thresholds)
    with _failing_as(method.name):
        known = {Decimal(name): tau for name, tau in method.thresholds(info).items()}
    card = {share: tau for share, tau in known.items() if 0 <= share < 1}
    if not known and not grid.thresholds:
        raise Unsupported(
            f"{method.name} has no calibrated thresholds for {info.name!r}; give --threshold=TAU[,TAU] "
            f"or another --budget ({', '.join(b for b in method.budgets if b != 'threshold')})"
        )
    wanted = grid.removed or (() if grid.thresholds else [share for share in DEFAULT_REMOVED if share in card])
    if not wanted and not grid.thresholds:  # published thresholds that no fraction is known for
        yield from (("threshold", tau, None) for tau in known.values())
    for share in wanted:
        if share == 0:
            yield "threshold", float("-inf"), 0.0
        elif share in card:
            yield "threshold", card[share], float(share)
        else:
            listed = ", ".join(str(s) for s in sorted(card)) or "none"
            raise MethodError(
                f"{method.name} has no threshold for {share} removed; its card has {listed}. Or give --threshold=TAU"
            )


def _sinks(protection: Protection) -> int | str:
    return "prefix" if protection.prefix else protection.sinks


class Masks(NamedTuple):
    """Keep masks of all variants on one context.

    keep     bool ``[V, L, H, T]``
    short    variant by variant: the context is no longer than the protection, so nothing was pruned
    bound    variant by variant: protection alone exceeds the number to keep
    failed   index of a variant -> (status, reason); its mask keeps everything and is not to be used
    """

    keep: Tensor
    short: list[bool]
    bound: list[bool]
    failed: dict[int, Failure]


def masks(planned: Sequence[Planned], scored: Scored, shape: tuple[int, int, int], prefix: int) -> Masks:
    """Masks of a context whose cache has ``shape`` (L, H, T); rankings are shared between levels."""
    cached = shape[2]
    scores = scored.scores
    keep = torch.ones(len(planned), *shape, dtype=torch.bool)
    short, bound = [False] * len(planned), [False] * len(planned)
    failed: dict[int, Failure] = {}
    rankings: dict[tuple[Method, Protection], Ranking] = {}
    for index, (variant, method, _) in enumerate(planned):
        if method.is_control:
            continue
        protection = variant.protection()
        protected = protection.mask(cached, prefix)
        short[index] = bool(protected.all()) or cached - prefix <= 1
        if short[index]:
            continue
        if method not in scores:
            failed[index] = scored.failed[method]
        elif not torch.isfinite(scores[method]).all():
            failed[index] = Failure("nan", f"{method.name} gave scores that are not finite")
        else:
            key = (method, protection)
            ranking = rankings.setdefault(key, Ranking(scores[method], protected))
            keep[index], bound[index] = _apply(variant, ranking, cached)
    return Masks(keep, short, bound, failed)


def _apply(variant: Variant, ranking: Ranking, cached: int) -> tuple[Tensor, bool]:
    assert variant.level is not None
    if variant.budget == "threshold":
        return ranking.threshold(variant.level), False
    if variant.level_kind == "keep_tokens":
        kept = min(int(variant.level), cached)
    else:
        kept = number_kept(cached, Decimal(str(variant.level)))
    by_budget = {"head": ranking.head, "layer": ranking.layer, "global": ranking.global_}
    return by_budget[variant.budget](kept), int(ranking.protected.sum()) > kept
