"""Facts of methods that are in results and not built in, from the runs that they are in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from harness.results.method_cards import Card, Option
from leaderboard.data.library import Entry

#: values of an option that a plugin's card lists
MOST_VALUES = 6


def plugin_cards(entries: Iterable[Entry], known: Iterable[str]) -> list[Card]:
    """Cards of methods that some runs have and ``known`` has not, from the variants in their ``run.json``."""
    known = set(known)
    variants: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if set(entry.methods) - known:
            for variant in entry.reading.configuration.get("variants") or []:
                if isinstance(variant, dict) and str(variant.get("method")) not in known:
                    variants.setdefault(str(variant["method"]), []).append(variant)
    return [_plugin(name, some) for name, some in sorted(variants.items())]


def _plugin(name: str, variants: Sequence[dict[str, Any]]) -> Card:
    def seen(field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(variant[field]) for variant in variants if field in variant))

    budgets, phases = seen("budget"), seen("phase")
    protection = tuple(
        dict.fromkeys(f"sinks {one.get('sinks')}, window {one.get('window')}" for one in variants if "sinks" in one)
    )
    return Card(
        name=name,
        summary="in results, not among the built-in methods",
        text=(),
        paper="",
        control=False,
        phases=phases,
        needs=(),
        extra_pass=False,
        attention_weights=(),
        cost="",
        budget=budgets[0] if budgets else "",
        budgets=budgets,
        refused={},
        lengths="",
        protection="; ".join(protection),
        positions=", ".join(seen("positions")),
        options=tuple(Option(name=key, default=value, about="") for key, value in _options(variants)),
        aliases={},
        plugin=True,
    )


def _options(variants: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The options of all variants, each with the values that were run."""
    found: dict[str, list[str]] = {}
    for variant in variants:
        try:
            options = json.loads(variant.get("options") or "{}")
        except (TypeError, ValueError):
            continue
        for key, value in options.items() if isinstance(options, dict) else ():
            found.setdefault(str(key), []).append(str(value))
    return [(key, ", ".join(list(dict.fromkeys(values))[:MOST_VALUES])) for key, values in found.items()]
