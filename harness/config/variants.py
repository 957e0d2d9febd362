"""Variants: settings that each say everything that changes an answer."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict

from harness.results.schema import VariantFields, level_text
from methods import registry
from methods.base import Method, Protection

#: fields of a variant that is not told otherwise
DEFAULTS: dict[str, Any] = {
    "phase": "prefill",
    "window": 0,
    "sinks": 0,
    "positions": "original",
    "engine": "masked",
    "attention_during_prefill": "full",
    "kv_bits": None,
    "query_mode": "agnostic",
    "thinking": False,
    "options": "{}",
}


class Variant(VariantFields):
    """One fully resolved setting. Equal variants give equal answers; each field is a column of the results."""

    model_config = ConfigDict(frozen=True)

    def __init__(
        self, method: str, budget: str = "none", level_kind: str = "none", level: float | None = None, **more: Any
    ) -> None:
        given = {"method": method, "budget": budget, "level_kind": level_kind, "level": level, **DEFAULTS, **more}
        super().__init__(variant=_label(**given), **given)

    @property
    def label(self) -> str:
        """The name that result files call ``variant``."""
        return self.variant

    def fields(self) -> dict[str, Any]:
        """The variant as columns, its label first."""
        return self.model_dump()

    def protection(self) -> Protection:
        """What this variant may not remove, beside the method's own mechanism."""
        prefix = self.sinks == "prefix"
        return Protection(0 if prefix else int(self.sinks), self.window, prefix)


def _label(
    *,
    method: str,
    budget: str,
    level_kind: str,
    level: float | None,
    window: int,
    sinks: int | str,
    query_mode: str,
    thinking: bool,
    options: str,
    **_: Any,
) -> str:
    """The label of these fields: what differs from the method's defaults is spelled out."""
    modes = ([] if query_mode == "agnostic" else [query_mode]) + (["thinking"] if thinking else [])
    plain = registry.get(method)().options()
    chosen = [f"{name}={value}" for name, value in json.loads(options).items() if plain.get(name, "") != value]
    if level_kind == "none":
        return " ".join([method, *chosen, *modes])
    own = build_from_options(method, options).protects_under(budget)
    differs = [] if window == own.window else [f"window={window}"]
    differs += [] if sinks == sinks_of(own) else [f"sinks={sinks}"]
    return " ".join([method, budget, level_text(level_kind, level), *differs, *chosen, *modes])


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
    except Exception:  # a method that wants the file itself, even where only its protection is needed
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
    """A variant, the bound method that scores it, and the requested removed fraction (threshold only)."""

    variant: Variant
    method: Method
    requested_removed: float | None


class NotPlanned(NamedTuple):
    """A method that cannot prune in the requested phase, as a variant without a level, and what is noted of it."""

    variant: Variant
    note: str


@dataclass
class Plan:
    """All variants of a run, the control first, and what could not be planned with the reasons.

    ``unsupported`` has, of what was skipped, the methods that cannot prune in the requested phase: they get a cell
    that says so, and no lines.
    """

    planned: list[Planned]
    skipped: dict[str, str] = field(default_factory=dict)
    unsupported: list[NotPlanned] = field(default_factory=list)

    @property
    def methods(self) -> list[Method]:
        """The methods that score, each once."""
        return list(dict.fromkeys(p.method for p in self.planned if not p.method.is_control))


def sinks_of(protection: Protection) -> int | str:
    """Protected first pairs as a variant writes them."""
    return "prefix" if protection.prefix else protection.sinks
