"""From a run's configuration and its model to the variants of the run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple

from harness.config import query_modes
from harness.config.run_config import AGNOSTIC, AWARE, RunConfig
from harness.config.variants import NotPlanned, Plan, Planned, Variant, recorded, sinks_of
from harness.errors import HarnessError
from methods import registry
from methods.base import Method, MethodError, ModelInfo, Unsupported
from methods.budgets import BUDGETS

DEFAULT_REMOVED = (Decimal("0.25"), Decimal("0.5"), Decimal("0.75"))

#: the values given to each option of a method
OptionValues = dict[str, list[str]]


def plan(config: RunConfig, info: ModelInfo) -> Plan:
    """The variants of a configuration on a model, the control first. Its phase, thinking and query modes are taken as
    resolved (none: prefill, off, agnostic).

    Methods that cannot do what is requested are skipped with a note when others remain; with none left it is an error.
    Methods are bound here, so a missing surrogate shows before the model loads.
    """
    return _Planner(config, info).plan()


class Option(NamedTuple):
    method: str
    name: str
    value: str


def option_of(text: str) -> Option:
    """``METHOD.NAME=VALUE`` in its parts; the method may be an alias."""
    left, equals, value = text.partition("=")
    method, dot, name = left.partition(".")
    if not (equals and dot and name):
        raise HarnessError(f"--option must be METHOD.NAME=VALUE, got {text!r}; see `kvprune methods`")
    return Option(method, name, value)


@contextmanager
def _failing_as(name: str) -> Iterator[None]:
    """What foreign code raises while a method is made ready is that method's fault, and no other's."""
    try:
        yield
    except MethodError:
        raise
    except Exception as error:
        raise MethodError(f"method {name!r} failed before the run: {type(error).__name__}: {error}") from error


class _Planner:
    """One configuration on one model; what is planned, skipped and unsupported so far."""

    def __init__(self, config: RunConfig, info: ModelInfo) -> None:
        self.config = config
        self.info = info
        self.phase = config.phase or "prefill"
        self.modes = config.query_mode or ((AWARE,) if config.query_aware else (AGNOSTIC,))
        self.planned: list[Planned] = []
        self.skipped: dict[str, str] = {}
        self.unsupported: list[NotPlanned] = []

    @property
    def control_mode(self) -> str:
        """The query mode of the control, whose mask no question changes."""
        return AGNOSTIC if self.config.query_mode else self.modes[0]

    def plan(self) -> Plan:
        for budget in self.config.budget:
            if budget not in BUDGETS:
                raise HarnessError(registry.unknown("budget", budget, list(BUDGETS)))
        control = registry.build("full", {"compat": self.config.compat})
        unpruned = Planned(self._variant(control, "none", query_mode=self.control_mode), control, None)
        for name, values in self._methods().items():
            self._add(name, values)
        if self.skipped and not self.planned:
            told = "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())
            hint = f" (the phase is {self.phase}; give another --phase or --method)" if self.unsupported else ""
            raise HarnessError(told + hint)
        self._check_levels()
        unique: dict[Variant, Planned] = {}
        for one in (unpruned, *self.planned):
            unique.setdefault(one.variant, one)
        return Plan(list(unique.values()), self.skipped, self.unsupported)

    def _methods(self) -> dict[str, OptionValues]:
        """The requested methods in their order with their options; aliases are resolved, the control is left out."""
        requested = registry.names() if "all" in self.config.method else self.config.method
        classes = [registry.get(registry.resolve(name, self.info)) for name in requested]
        found: dict[str, OptionValues] = {cls.name: {} for cls in classes if not cls.is_control}
        for option in map(option_of, self.config.option):
            name = registry.resolve(option.method, self.info)
            with _failing_as(name):
                registry.build(name, {option.name: option.value})  # also where its method is not requested
            if name in found:
                found[name].setdefault(option.name, []).append(option.value)
        if found and self.info.layers == 0:
            raise HarnessError(
                f"every layer of model {self.info.name!r} has a sliding window, so nothing can be pruned; "
                "use --method full"
            )
        return found

    def _add(self, name: str, values: OptionValues) -> None:
        """All variants of one method, or the reasons why there are none."""
        try:
            instances = list(self._instances(name, values))
        except MethodError as error:
            self.skipped[name] = self._note(error)
            return
        method = instances[0]
        if self.phase not in method.phases:
            own = method.protects()
            variant = self._variant(
                method, method.default_budget, window=own.window, sinks=sinks_of(own), query_mode=self.control_mode
            )
            self.skipped[name] = f"{' and '.join(method.phases)} only"
            self.unsupported.append(NotPlanned(variant, self.skipped[name]))
            return
        for budget, mode in itertools.product(self.config.budget or (method.default_budget,), self.modes):
            able = [method for method in instances if self._prunes_in(mode, method)]
            try:
                self.planned += list(self._variants(able, budget, mode))
            except MethodError as error:
                self.skipped[name if len(self.config.budget) < 2 else f"{name} {budget}"] = self._note(error)

    def _instances(self, name: str, values: OptionValues) -> Iterator[Method]:
        """One bound instance for each combination of the values given to each option."""
        if self.config.compat and "compat" not in values:
            values = {**values, "compat": [self.config.compat]}
        for chosen in itertools.product(*values.values()):
            with _failing_as(name):
                yield registry.build(name, dict(zip(values, chosen, strict=True))).bind(self.info)

    def _note(self, error: MethodError) -> str:
        """Why something is skipped; raised instead where the method was named and not just the combination is wrong."""
        if "all" not in self.config.method and not isinstance(error, Unsupported):
            raise error
        return str(error)

    def _prunes_in(self, mode: str, method: Method) -> bool:
        reason = query_modes.refusal(method, mode, self.phase) if self.config.query_mode else ""
        if reason:
            self.skipped[f"{method.name} {mode}"] = reason
        return not reason

    def _variants(self, instances: Sequence[Method], budget: str, mode: str) -> Iterator[Planned]:
        for method in instances:
            self._check(method, budget)
            own = method.protects_under(budget)
            levels = list(self._levels(method, budget))
            protections = itertools.product(self.config.window or (own.window,), self.config.sinks or (sinks_of(own),))
            for window, sinks in protections:
                fixed = {"window": window, "sinks": sinks, "positions": method.positions, "query_mode": mode}
                for kind, level, requested in levels:
                    yield Planned(self._variant(method, budget, kind, level, **fixed), method, requested)

    def _variant(
        self, method: Method, budget: str, kind: str = "none", level: float | None = None, **more: Any
    ) -> Variant:
        thinking = self.config.thinking == "on"
        options = recorded(method)
        return Variant(method.name, budget, kind, level, phase=self.phase, thinking=thinking, options=options, **more)

    def _check(self, method: Method, budget: str) -> None:
        """:class:`Unsupported` where a method and a budget do not go together, or not in this phase."""
        if budget not in method.budgets:
            reason = method.refused.get(budget, "its scores do not fit it")
            raise Unsupported(
                f"{method.name} does not work with budget {budget!r}: {reason}. It takes {', '.join(method.budgets)}"
            )
        if method.positions == "cache":
            self._check_moving(method)
        if self.phase != "prefill" and budget in ("layer", "global"):
            raise Unsupported(f"budget {budget!r} is for the prefill only; while decoding it is head or threshold")
        if method.compat and (reason := self._kvpress_refusal(method, budget)):
            raise Unsupported(reason)

    def _kvpress_refusal(self, method: Method, budget: str) -> str:
        """Why kvpress cannot run a method of ``compat="kvpress"`` this way; empty where it can."""
        theirs = method.kvpress
        if theirs is None:
            return f"NVIDIA/kvpress has no {method.name}; leave compat off"
        if lacks := theirs.lacks(method):
            return lacks
        if budget not in theirs.budgets:
            return f"NVIDIA/kvpress has no budget {budget!r} for {method.name}; it has {', '.join(theirs.budgets)}"
        if self.phase != "prefill" and not (budget == "threshold" and theirs.decodes):
            return f"while decoding NVIDIA/kvpress has the threshold budget only, not {budget!r} with {method.name}"
        if self.phase == "decode":
            return "NVIDIA/kvpress judges the context too where it prunes while decoding; use --phase both"
        if self.config.keep_tokens and budget != "threshold":
            return "NVIDIA/kvpress takes removed fractions, no --keep-tokens"
        return ""

    def _check_moving(self, method: Method) -> None:
        """Positions counted in the cache move kept keys, and a key's weights are then those of its copy."""
        if self.info.rope_scaling in ("dynamic", "longrope"):
            raise Unsupported(
                f"{method.name} moves keys to other positions, and model {self.info.name!r} has "
                f"{self.info.rope_scaling} RoPE scaling, whose angles change with the length; use a method with "
                "original positions or another --model"
            )
        if self.phase != "prefill" and "weights" in method.needs:
            raise Unsupported(
                f"{method.name} reads attention weights, whose pairs move in phase {self.phase}; use prefill"
            )

    def _levels(self, method: Method, budget: str) -> Iterator[tuple[str, float, float | None]]:
        """Level kind, level and requested fraction of each level that applies to the budget."""
        if budget == "threshold":
            yield from self._thresholds(method)
            return
        removed = self.config.removed or (() if self.config.keep_tokens else DEFAULT_REMOVED)
        yield from (("removed", float(value), None) for value in removed)
        yield from (("keep_tokens", float(count), None) for count in self.config.keep_tokens)

    def _thresholds(self, method: Method) -> Iterator[tuple[str, float, float | None]]:
        """Those given, and the method's own for the removed fractions."""
        given = self.config.threshold
        yield from (("threshold", tau, None) for tau in given)
        with _failing_as(method.name):
            known = {Decimal(name): tau for name, tau in method.thresholds(self.info).items()}
        card = {share: tau for share, tau in known.items() if 0 <= share < 1}
        if not known and not given:
            raise Unsupported(
                f"{method.name} has no calibrated thresholds for {self.info.name!r}; give --threshold=TAU[,TAU] "
                f"or another --budget ({', '.join(b for b in method.budgets if b != 'threshold')})"
            )
        wanted = self.config.removed or (() if given else [share for share in DEFAULT_REMOVED if share in card])
        if not wanted and not given:  # published thresholds that no fraction is known for
            yield from (("threshold", tau, None) for tau in known.values())
        for share in wanted:
            if share == 0:
                yield "threshold", float("-inf"), 0.0
            elif share in card:
                yield "threshold", card[share], float(share)
            else:
                listed = ", ".join(str(s) for s in sorted(card)) or "none"
                raise MethodError(
                    f"{method.name} has no threshold for {share} removed; its card has {listed}. Or give "
                    "--threshold=TAU"
                )

    def _check_levels(self) -> None:
        """A level flag that no variant takes is a mistake, since defaults would run in its place."""
        kinds = {one.variant.level_kind for one in self.planned}
        if kinds and self.config.threshold and "threshold" not in kinds:
            raise HarnessError(
                "--threshold is for the threshold budget, which no method here has; add --budget threshold"
            )
        if kinds and self.config.keep_tokens and "keep_tokens" not in kinds:
            raise HarnessError(
                "--keep-tokens never applies to the threshold budget; add --budget head, layer or global"
            )
