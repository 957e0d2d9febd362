"""Facts of methods: those of the built-in ones from ``methods.yaml``, a plugin's from the runs that it is in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from harness.errors import HarnessError
from leaderboard.data.library import Entry

FILE = Path(__file__).with_name("methods.yaml")
#: values of an option that a plugin's card lists
MOST_VALUES = 6


class Option(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    default: bool | int | float | str
    about: str


class Card(BaseModel):
    """What is known of a method; fields of built-in ones are those that ``scripts/method_cards.py`` writes.

    text               what its score is, in paragraphs
    attention_weights  phases in which its scores come from attention weights
    lengths            how long heads' caches are under its own budget
    plugin             it is in results and not in the file: the rest is from run files, or empty
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    summary: str
    text: tuple[str, ...]
    paper: str
    control: bool
    phases: tuple[str, ...]
    needs: tuple[str, ...]
    extra_pass: bool
    attention_weights: tuple[str, ...]
    cost: str
    budget: str
    budgets: tuple[str, ...]
    refused: dict[str, str]
    lengths: str
    protection: str
    positions: str
    options: tuple[Option, ...]
    aliases: tuple[str, ...]
    plugin: bool = False

    @property
    def paper_url(self) -> str | None:
        """The address on arXiv where the paper is named by its number there."""
        number = re.match(r"arXiv (\d{4}\.\d{4,5})\b", self.paper)
        return f"https://arxiv.org/abs/{number[1]}" if number else None


@cache
def cards(path: Path = FILE) -> tuple[Card, ...]:
    """The built-in methods, in the registry's order."""
    try:
        return TypeAdapter(tuple[Card, ...]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError, yaml.YAMLError) as error:
        told = str(error).splitlines()[0]
        raise HarnessError(f"{path.name} cannot be read ({told}); python scripts/method_cards.py writes it") from error


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
        aliases=(),
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
