"""Facts of methods that are in results and not built in, from the runs that they are in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from harness.results.method_cards import Card, Option
from harness.results.schema import VariantFields
from leaderboard.data.library import Entry

#: values of an option that a plugin's card lists
MOST_VALUES = 6


def plugin_cards(entries: Iterable[Entry], known: Iterable[str]) -> list[Card]:
    """Cards of methods that some runs have and ``known`` has not, from the variants in their ``run.json``."""
    known = set(known)
    variants: dict[str, list[VariantFields]] = {}
    for entry in entries:
        if set(entry.methods) - known:
            for variant in entry.reading.configuration.variants:
                if variant.method not in known:
                    variants.setdefault(variant.method, []).append(variant)
    return [_plugin(name, some) for name, some in sorted(variants.items())]


def _plugin(name: str, variants: Sequence[VariantFields]) -> Card:
    budgets, phases, protection, positions = (
        tuple(dict.fromkeys(of(variant) for variant in variants))
        for of in (
            lambda one: one.budget,
            lambda one: one.phase,
            lambda one: f"sinks {one.sinks}, window {one.window}",
            lambda one: one.positions,
        )
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
        budget=budgets[0],
        budgets=budgets,
        refused={},
        lengths="",
        protection="; ".join(protection),
        positions=", ".join(positions),
        options=tuple(Option(name=key, default=value, about="") for key, value in _options(variants)),
        aliases={},
        plugin=True,
    )


def _options(variants: Sequence[VariantFields]) -> list[tuple[str, str]]:
    """The options of all variants, each with the values that were run."""
    found: dict[str, list[str]] = {}
    for variant in variants:
        try:
            options = json.loads(variant.options)
        except ValueError:
            continue
        for key, value in options.items() if isinstance(options, dict) else ():
            found.setdefault(str(key), []).append(str(value))
    return [(key, ", ".join(list(dict.fromkeys(values))[:MOST_VALUES])) for key, values in found.items()]
