"""Variants: settings that each say everything that changes an answer."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from methods import registry
from methods.base import Method, Protection


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
        modes = ([] if self.query_mode == "agnostic" else [self.query_mode]) + (["thinking"] if self.thinking else [])
        plain = registry.get(self.method)().options()
        chosen = [f"{name}={value}" for name, value in json.loads(self.options).items() if plain.get(name, "") != value]
        if self.level_kind == "none":
            return " ".join([self.method, *chosen, *modes])
        mark = {"removed": "", "keep_tokens": "keep=", "threshold": "tau="}[self.level_kind]
        parts = [self.method, self.budget, mark + repr(self.level).removesuffix(".0")]  # all digits, so never twice
        method = build_from_options(self.method, self.options)
        own = method.protects_under(self.budget)
        if self.window != own.window:
            parts.append(f"window={self.window}")
        if self.sinks != sinks_of(own):
            parts.append(f"sinks={self.sinks}")
        return " ".join([*parts, *chosen, *modes])

    def fields(self) -> dict[str, Any]:
        """The variant as columns, its label first."""
        columns = {"variant": self.label, **asdict(self)}
        if self.level is not None and math.isinf(self.level):  # JSON has no infinity
            columns["level"] = str(self.level)
        return columns

    def protection(self) -> Protection:
        """What this variant may not remove, beside the method's own mechanism."""
        prefix = self.sinks == "prefix"
        return Protection(0 if prefix else int(self.sinks), self.window, prefix)


def build_from_options(name: str, options: str) -> Method:
    """A method instance from a variant's canonical options."""
    return registry.get(name)(**json.loads(options))


def recorded(method: Method) -> str:
    """The options of a bound method as canonical JSON, as variants have them.

    An option that names a file or folder (:func:`methods.base.path_option`), such as a surrogate's weights, is written
    as its name without the folders above it and the beginning of the method's fingerprint: other content is another
    variant, and no path of this machine is in the results.
    """
    given = json.dumps(method.options(), sort_keys=True)
    paths = [name for name, one in method.option_fields().items() if one.metadata.get("path")]
    named = {name: value for name in paths if (value := getattr(method, name)) and _is_path(value)}
    if not named:
        return given
    found = {
        name: f"{os.path.basename(os.path.abspath(value))}@{_digest(method, value)}" for name, value in named.items()
    }
    hidden = json.dumps({**method.options(), **found}, sort_keys=True)
    try:
        build_from_options(method.name, hidden)
    except Exception:  # a method that wants the file itself, even where only its protection is asked for
        return given
    return hidden


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except OSError:
        return False


def _digest(method: Method, value: str) -> str:
    return (method.fingerprint() or hashlib.sha256(value.encode()).hexdigest())[:8]


class Planned(NamedTuple):
    """A variant, the bound method that scores it, and the removed fraction asked for (threshold only)."""

    variant: Variant
    method: Method
    requested_removed: float | None


@dataclass
class Plan:
    """All variants of a run, the control first, and what could not be planned with the reasons.

    ``unsupported`` has, of what was skipped, the methods that cannot prune in the phase asked for: they get a cell
    that says so, and no lines.
    """

    planned: list[Planned]
    skipped: dict[str, str] = field(default_factory=dict)
    unsupported: list[Variant] = field(default_factory=list)

    @property
    def methods(self) -> list[Method]:
        """The methods that score, each once."""
        return list(dict.fromkeys(p.method for p in self.planned if not p.method.is_control))


def only(phases: Sequence[str]) -> str:
    """The note on a method that can prune in these phases and was asked for another."""
    return f"{' and '.join(phases)} only"


def sinks_of(protection: Protection) -> int | str:
    """Protected first pairs as a variant writes them."""
    return "prefix" if protection.prefix else protection.sinks
