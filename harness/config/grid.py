"""From what a user asks for to the variants of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from harness.config import query_modes as query_modes
from harness.config.query_modes import AGNOSTIC, AWARE
from harness.config.variants import Plan, Planned, Variant, only, recorded, sinks_of
from harness.errors import HarnessError
from methods import registry
from methods.base import Method, MethodError, ModelInfo, Unsupported
from methods.budgets import BUDGETS

PHASES = ("prefill", "decode", "both")
DEFAULT_REMOVED = (Decimal("0.25"), Decimal("0.5"), Decimal("0.75"))


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
    thinking: bool = False
    query_modes: tuple[str, ...] = ()


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
    modes = grid.query_modes or ((AWARE,) if grid.query_aware else (AGNOSTIC,))
    query_mode = AGNOSTIC if grid.query_modes else modes[0]  # the control's, whose mask no question changes
    control = registry.build("full", {"compat": grid.compat})
    options = recorded(control)
    unpruned = Variant("full", phase=grid.phase, query_mode=query_mode, thinking=grid.thinking, options=options)
    planned = [Planned(unpruned, control, None)]
    skipped: dict[str, str] = {}
    unsupported: list[Variant] = []
    for name in _names(grid, info):
        try:
            instances = list(_instances(name, grid, info))
        except MethodError as error:
            skipped[name] = _note(error, grid)
            continue
        if grid.phase not in instances[0].phases:
            skipped[name] = only(instances[0].phases)
            unsupported.append(_unsupported(instances[0], grid, query_mode))
            continue
        for budget in grid.budgets or (registry.get(name).default_budget,):
            for mode in modes:
                reasons = {m: query_modes.refusal(m, mode, grid.phase) if grid.query_modes else "" for m in instances}
                skipped |= {f"{name} {mode}": reason for reason in reasons.values() if reason}
                able = [method for method, reason in reasons.items() if not reason]
                try:
                    planned += list(_plan_method(able, budget, grid, info, mode))
                except MethodError as error:
                    skipped[name if len(grid.budgets) < 2 else f"{name} {budget}"] = _note(error, grid)
    if len(planned) == 1 and skipped:
        told = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        hint = f" (the phase is {grid.phase}; give another --phase or --method)" if unsupported else ""
        raise HarnessError(told + hint)
    _check_used(grid, planned)
    unique: dict[Variant, Planned] = {}
    for one in planned:
        unique.setdefault(one.variant, one)
    return Plan(list(unique.values()), skipped, unsupported)


def _unsupported(method: Method, grid: Grid, query_mode: str) -> Variant:
    """A method that cannot prune in the phase asked for, as a variant without a level."""
    own = method.protects()
    return Variant(
        method.name,
        method.default_budget,
        phase=grid.phase,
        window=own.window,
        sinks=sinks_of(own),
        query_mode=query_mode,
        thinking=grid.thinking,
        options=recorded(method),
    )


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


def check_names(methods: Sequence[str]) -> None:
    """Raise :class:`MethodError` on a name that is no method, alias or ``all``; needs no model."""
    for name in methods:
        if name != "all" and name not in registry.aliases():
            registry.get(name)


def _check(grid: Grid, info: ModelInfo) -> None:
    for budget in grid.budgets:
        if budget not in BUDGETS:
            raise HarnessError(registry.unknown("budget", budget, list(BUDGETS)))
    if grid.phase not in PHASES:
        raise HarnessError(registry.unknown("phase", grid.phase, list(PHASES)))
    check_names(grid.methods)
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
    if grid.compat:
        values.setdefault("compat", [grid.compat])
    for chosen in itertools.product(*values.values()):
        with _failing_as(name):
            yield registry.build(name, dict(zip(values, chosen, strict=True))).bind(info)


def _plan_method(
    instances: Sequence[Method], budget: str, grid: Grid, info: ModelInfo, query_mode: str
) -> Iterator[Planned]:
    for method in instances:
        if budget not in method.budgets:
            reason = method.refused.get(budget, "its scores do not fit it")
            raise Unsupported(
                f"{method.name} does not work with budget {budget!r}: {reason}. It takes {', '.join(method.budgets)}"
            )
        if method.positions == "cache":
            _check_moving(method, grid.phase, info)
        if grid.phase != "prefill" and budget in ("layer", "global"):
            raise Unsupported(f"budget {budget!r} is for the prefill only; while decoding it is head or threshold")
        if method.compat and (reason := _kvpress_refusal(method, budget, grid)):
            raise Unsupported(reason)
        own = method.protects_under(budget)
        levels = list(_levels(method, budget, grid, info))
        for window, sinks in itertools.product(grid.windows or (own.window,), grid.sinks or (sinks_of(own),)):
            for kind, level, requested in levels:
                variant = Variant(
                    method.name,
                    budget,
                    kind,
                    level,
                    grid.phase,
                    window,
                    sinks,
                    positions=method.positions,
                    query_mode=query_mode,
                    thinking=grid.thinking,
                    options=recorded(method),
                )
                yield Planned(variant, method, requested)


def _kvpress_refusal(method: Method, budget: str, grid: Grid) -> str:
    """Why kvpress cannot run a method of ``compat="kvpress"`` this way; empty where it can."""
    theirs = method.kvpress
    if theirs is None:
        return f"NVIDIA/kvpress has no {method.name}; leave compat off"
    if lacks := theirs.lacks(method):
        return lacks
    if budget not in theirs.budgets:
        return f"NVIDIA/kvpress has no budget {budget!r} for {method.name}; it has {', '.join(theirs.budgets)}"
    if grid.phase != "prefill" and not (budget == "threshold" and theirs.decodes):
        return f"while decoding NVIDIA/kvpress has the threshold budget only, not {budget!r} with {method.name}"
    if grid.phase == "decode":
        return "NVIDIA/kvpress judges the context too where it prunes while decoding; use --phase both"
    if grid.keep_tokens and budget != "threshold":
        return "NVIDIA/kvpress takes removed fractions, no --keep-tokens"
    return ""


def _check_moving(method: Method, phase: str, info: ModelInfo) -> None:
    """Positions counted in the cache move kept keys, and a key's weights are then those of its copy."""
    if info.rope_scaling in ("dynamic", "longrope"):
        raise Unsupported(
            f"{method.name} moves keys to other positions, and model {info.name!r} has {info.rope_scaling} RoPE "
            "scaling, whose angles change with the length; use a method with original positions or another --model"
        )
    if phase != "prefill" and "weights" in method.needs:
        raise Unsupported(f"{method.name} reads attention weights, whose pairs move in phase {phase}; use prefill")


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
