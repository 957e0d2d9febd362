"""What a method's class declares, in plain values: for listings and the leaderboard.

``cards.yaml`` has the cards of the built-in methods, for readers that load no torch; ``scripts/method_cards.py``
writes it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

from methods import registry
from methods.base import Method

_ROLE = re.compile(r":(\w+):`([^`]+)`")


def card(cls: type[Method]) -> dict[str, Any]:
    """What a class declares, and its docstring: the text in paragraphs, the options by name."""
    method = cls()
    aliases = {name: alias for name, alias in registry.aliases().items() if cls.name.startswith(f"{name}_")}
    text, about = described(cls)
    weights = [phase for phase, reads in (("prefill", _sees_weights(cls)), ("decode", "weights" in cls.needs)) if reads]
    return {
        "name": cls.name,
        "summary": cls.summary,
        "text": text,
        "paper": cls.paper,
        "control": cls.is_control,
        "phases": list(cls.phases),
        "needs": sorted(cls.needs),
        "extra_pass": cls.passes is not Method.passes,
        "attention_weights": weights,
        "cost": cls.cost,
        "budget": cls.default_budget,
        "budgets": list(cls.budgets),
        "refused": dict(cls.refused),
        "lengths": _lengths(cls),
        "protection": _protection(method),
        "positions": cls.positions,
        "options": [
            {"name": name, "default": value, "about": about.get(name, "")} for name, value in method.options().items()
        ],
        "aliases": {name: alias.summary for name, alias in aliases.items()},
    }


def described(cls: type[Method]) -> tuple[list[str], dict[str, str]]:
    """The paragraphs of a class and of the nameless ones that it is made from, and what they say of options."""
    paragraphs: list[str] = []
    about: dict[str, str] = {}
    for base in cls.__mro__[: cls.__mro__.index(Method)]:
        known = {field.name for field in fields(base)}
        for block in inspect.cleandoc(base.__doc__ or "").split("\n\n"):
            entries = _options(block, known)
            if entries:
                about = {**entries, **about}
            elif base is cls or not base.__dict__.get("name"):
                paragraphs.append(_plain(block))
    return paragraphs, about


def _options(block: str, known: set[str]) -> dict[str, str]:
    """``name   what it is`` lines, with their continuations; none where the block is prose."""
    found: dict[str, str] = {}
    last = ""
    for line in block.splitlines():
        match = re.match(r"(\w+) {2,}(\S.*)", line)
        if match and match[1] in known:
            last = match[1]
            found[last] = match[2]
        elif last and line.startswith(" "):
            found[last] += " " + line.strip()
        else:
            return {}
    return {name: _plain(text) for name, text in found.items()}


def _plain(text: str) -> str:
    """One line without Sphinx roles; a class or module of a method becomes the method's name."""
    by_class = {registry.get(name).__name__: name for name in registry.names()}

    def role(match: re.Match[str]) -> str:
        last = match[2].strip("~").split(".")[-1]
        return by_class.get(last, last)

    return " ".join(_ROLE.sub(role, text).replace("``", "").split())


def _sees_weights(cls: type[Method]) -> bool:
    """Whether scores after the prefill come from attention weights, by what the class says of its cost; an extra pass
    is there for its weights."""
    return "attention weights" in cls.cost or cls.passes is not Method.passes


def _lengths(cls: type[Method]) -> str:
    """How long heads' caches are under the method's own budget."""
    if cls.is_control or cls.default_budget == "head":
        one_number = cls.kept_by_layer is Method.kept_by_layer
        return "the same in all heads" if one_number else "the same in all heads of a layer"
    return "different by head"


def _protection(method: Method) -> str:
    """What a method always keeps; of a part that depends on the number kept, its share."""
    protection = method.protects() | method.mechanism_for(0)
    parts = [f"first {protection.sinks}"] if protection.sinks else []
    parts += [f"last {protection.window}"] if protection.window else []
    parts += ["template prefix"] if protection.prefix else []
    grown = method.mechanism_for(1000).window - method.mechanism_for(0).window
    parts += [f"newest {grown / 1000:.0%} of what is kept"] if grown else []
    return ", ".join(parts) or "none"
