"""What a user asks of a run: flags over a YAML file over defaults, each value checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from harness.config import query_modes as query_modes
from harness.config.grid import Grid, parse_removed, parse_threshold
from harness.errors import HarnessError
from harness.models.embedded import DEFAULT_MODEL
from methods import yaml_files
from methods.registry import unknown

THINKING = ("on", "off", "auto")
#: no count is larger; up to here floats are exact
MOST = 10**12


@dataclass(frozen=True)
class RunRequest:
    """A run as asked for; empty tuples and None mean the default that the resolved run records. So do ``phase`` where
    ``given`` lacks it (the benchmark has a default) and ``thinking`` auto."""

    method: tuple[str, ...] = ("kvzap",)
    budget: tuple[str, ...] = ()
    removed: tuple[Decimal, ...] = ()
    threshold: tuple[float, ...] = ()
    keep_tokens: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    sinks: tuple[int, ...] = ()
    option: tuple[str, ...] = ()
    phase: str = "prefill"
    query_aware: bool = False
    query_mode: tuple[str, ...] = ()
    compat: str = ""
    thinking: str = "auto"
    rollouts: int | None = None
    max_new_tokens: int | None = None
    benchmark: tuple[str, ...] = ("needles",)
    length: tuple[int, ...] = ()
    subset: tuple[str, ...] = ()
    limit: int | None = None
    data: Path | None = None
    reference: str | None = None
    model: str = DEFAULT_MODEL
    device: str = "auto"
    dtype: str = "auto"
    seed: int = 0
    plugin: tuple[Path, ...] = ()
    out: Path = Path("results")
    resume: bool = False
    force: bool = False
    store_masks: int = 0
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def grid(self, phase: str | None = None, thinking: bool = False, query_modes: tuple[str, ...] = ()) -> Grid:
        """The part that makes variants; ``phase``, ``thinking`` and ``query_modes`` are the resolved ones."""
        return Grid(
            self.method,
            self.budget,
            self.removed,
            self.threshold,
            self.keep_tokens,
            self.window,
            self.sinks,
            self.option,
            phase or self.phase,
            self.query_aware,
            self.compat,
            thinking,
            query_modes,
        )


def build(flags: dict[str, Any], config: Path | None = None) -> RunRequest:
    """A request from command-line flags (None where not given) and a YAML file whose keys are the flags' names."""
    known = {f.name for f in fields(RunRequest)} - {"given"}
    values = _read(config, known) if config is not None else {}
    values |= {name: value for name, value in flags.items() if value is not None}
    if values.get("compat", "") not in ("", "kvpress"):
        raise HarnessError(f"--compat must be kvpress, got {values['compat']!r}")
    if isinstance(values.get("thinking"), bool):  # YAML reads a bare on or off so
        values["thinking"] = "on" if values["thinking"] else "off"
    if values.get("thinking", "auto") not in THINKING:
        raise HarnessError(f"--thinking must be on, off or auto, got {values['thinking']!r}")
    parsed = {name: _PARSE.get(name, lambda value: value)(value) for name, value in values.items()}
    if parsed.get("resume") and parsed.get("force"):
        raise HarnessError("--resume and --force exclude each other: the first goes on, the second starts over")
    return RunRequest(**parsed, given=frozenset(parsed))


def _read(path: Path, known: set[str]) -> dict[str, Any]:
    needed = "keys and values, the keys being flag names such as removed: 0.5"
    try:
        content = yaml_files.read(path)
    except yaml_files.YamlFault as error:
        raise HarnessError(f"--config {path} {error}; it must hold {needed}") from error
    if not isinstance(content, dict | None):
        raise HarnessError(f"--config {path} must hold {needed}")
    values: dict[str, Any] = {}
    for written, value in (content or {}).items():
        key = str(written).replace("-", "_")
        if key not in known:
            raise HarnessError(f"--config {path}: {unknown('key', key, sorted(known))}")
        if key in values:
            raise HarnessError(f"--config {path} has the key {key} twice, once with - and once with _; leave one out")
        inner = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in inner):
            raise HarnessError(f"--config {path}: {key} takes a value, or a list of values that hold nothing more")
        values[key] = value
    return {key: value for key, value in values.items() if value is not None}


def parts(value: Any) -> list[str]:
    """The parts of a list given as ``a,b``, as repeated flags, or as a YAML list."""
    items = value if isinstance(value, list | tuple) else [] if value is None else [value]
    found = [part.strip() for item in items for part in str(item).split(",")]
    return [part for part in found if part]


def _list_of(label: str, convert: Callable[[str], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def parse(value: Any) -> tuple[Any, ...]:
        found = parts(value)
        if not found:
            raise HarnessError(f"--{label} was given without a value")
        return tuple(dict.fromkeys(map(convert, found)))

    return parse


def _count(label: str, least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = least - 1
        if not least <= number <= MOST:
            raise HarnessError(f"--{label} must be a whole number from {least} to {MOST}, got {value!r}")
        return number

    return parse


def _text(label: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
            raise HarnessError(f"--{label} takes one text, got {value!r}")
        return str(value)

    return parse


def _switch(label: str) -> Callable[[Any], bool]:
    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise HarnessError(f"--{label} must be true or false, got {value!r}")
        return value

    return parse


def _path(label: str) -> Callable[[Any], Path]:
    text = _text(label)
    return lambda value: Path(text(value))


def counts(label: str, value: Any) -> tuple[int, ...]:
    """Whole numbers of at least 1 from a list flag."""
    return _list_of(label, _count(label, 1))(value)


def texts(label: str, value: Any) -> tuple[str, ...]:
    """Texts of a list flag, at least one."""
    return _list_of(label, str)(value)


def options(value: Any) -> tuple[str, ...]:
    """``METHOD.NAME=VALUE``, several separated by commas or repeated; a comma inside a value is left alone."""
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(part for item in items for part in re.split(r",\s*(?=\w+\.\w+=)", str(item)))


_PARSE: dict[str, Callable[[Any], Any]] = {
    "method": _list_of("method", str),
    "budget": _list_of("budget", str),
    "removed": _list_of("removed", parse_removed),
    "threshold": _list_of("threshold", parse_threshold),
    "keep_tokens": _list_of("keep-tokens", _count("keep-tokens", 1)),
    "window": _list_of("window", _count("window", 0)),
    "sinks": _list_of("sinks", _count("sinks", 0)),
    "option": options,
    "benchmark": _list_of("benchmark", str),
    "length": _list_of("length", _count("length", 1)),
    "subset": _list_of("subset", str),
    "limit": _count("limit", 1),
    "rollouts": _count("rollouts", 1),
    "max_new_tokens": _count("max-new-tokens", 1),
    "seed": _count("seed", 0),
    "data": _path("data"),
    "reference": _text("reference"),
    "out": _path("out"),
    "plugin": _list_of("plugin", Path),
    "model": _text("model"),
    "device": _text("device"),
    "dtype": _text("dtype"),
    "phase": _text("phase"),
    "query_aware": _switch("query-aware"),
    "query_mode": _list_of("query-mode", query_modes.parse),
    "resume": _switch("resume"),
    "force": _switch("force"),
    "store_masks": _count("store-masks", 0),
}
