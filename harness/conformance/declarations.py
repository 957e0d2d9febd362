"""Checks of what a method says about itself; no model runs."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from typing import Any

from harness.config.run_config import PHASES
from harness.config.variants import build_from_options
from harness.conformance.fixtures import Bench
from harness.conformance.suite import Skip, check, expect
from methods import registry
from methods.base import Method, Protection
from methods.budgets import BUDGETS

NEEDS = ("hidden", "queries", "weights")
OPTION_TYPES = (int, float, bool, str)


@check("a name that can be typed and a summary", control=True)
def description(bench: Bench) -> None:
    cls = bench.cls
    expect(bool(re.fullmatch(r"[a-z][a-z0-9_]*", cls.name)), f"name {cls.name!r} must be lower case letters, digits, _")
    expect(isinstance(cls.summary, str) and bool(cls.summary.strip()), "summary is empty; say in one line what it is")


@check("phases, needs and budgets are known words; each refused budget has a reason", control=True)
def declarations(bench: Bench) -> None:
    cls = bench.cls
    _among("phases", cls.phases, PHASES)
    expect(bool(cls.phases), f"phases is empty; it must name some of {', '.join(PHASES)}")
    _among("needs", cls.needs, NEEDS)
    if cls.is_control:
        return
    _among("budgets", cls.budgets, BUDGETS)
    expect(
        cls.default_budget in cls.budgets,
        f"default_budget {cls.default_budget!r} is not among budgets {', '.join(cls.budgets) or '(none)'}",
    )
    _among("refused", cls.refused, BUDGETS)
    for budget in BUDGETS:
        reason = cls.refused.get(budget, "")
        if budget in cls.budgets:
            expect(not reason, f"budget {budget!r} is both among budgets and refused ({reason!r}); choose one")
        else:
            expect(
                bool(reason.strip()), f"budget {budget!r} is left out of budgets; say why in refused[{budget!r}] = ..."
            )
    for name in ("protection", "mechanism"):
        value = getattr(cls, name)
        expect(isinstance(value, Protection), f"{name} must be a Protection, got {value!r}")


def _among(name: str, given: Any, known: tuple[str, ...]) -> None:
    expect(
        not isinstance(given, str), f"{name} must be a collection of words, got the text {given!r}; write ({given!r},)"
    )
    for word in given:
        expect(word in known, f"{name} has {word!r}; the words are {', '.join(known)}")


@check("typed int, float, bool or str with a default; the same again from JSON and from text", control=True)
def options(bench: Bench) -> None:
    cls = bench.cls
    _decorated(cls)
    for one in cls.option_fields().values():
        expect(
            type(one.default) in OPTION_TYPES,
            f"option {one.name!r} has the default {one.default!r}; it needs one of type int, float, bool or str",
        )
        kind = type(one.default).__name__
        said = one.type if isinstance(one.type, str) else getattr(one.type, "__name__", str(one.type))
        expect(said == kind, f"option {one.name!r} is annotated {said} and has a default of type {kind}; make them one")
    method = registry.build(bench.name, bench.given)
    values = method.options()
    text = json.dumps(values, sort_keys=True)
    again = build_from_options(bench.name, text)
    expect(
        again == method and hash(again) == hash(method),
        f"an instance made from its options {text} differs from the one they came from",
    )
    typed = registry.build(bench.name, {name: str(value) for name, value in values.items()})
    expect(
        json.dumps(typed.options(), sort_keys=True) == text,
        f"options given as text ({bench.name}.NAME=VALUE) come back as {typed.options()}, not as {values}",
    )


def _decorated(cls: type[Method]) -> None:
    """A class that adds options without the decorator keeps them out of its fields."""
    known = {one.name for one in fields(cls)}
    for base in cls.__mro__[:-1]:
        for name, kind in vars(base).get("__annotations__", {}).items():
            if "ClassVar" not in str(kind) and name not in known and not name.startswith("_"):
                expect(
                    False,
                    f"{base.__name__}.{name} is annotated as an option but is none; "
                    "put @dataclass(frozen=True) above the class (or annotate it as ClassVar)",
                )


@check("bind gives an equal copy and changes nothing; fingerprint and thresholds are well formed", control=True)
def bind(bench: Bench) -> None:
    plain = registry.build(bench.name, bench.given)
    before = dict(vars(plain))
    bound, again = plain.bind(bench.info), plain.bind(bench.info)
    expect(
        isinstance(bound, bench.cls), f"bind must return a {bench.cls.__name__}, got {type(bound).__name__} ({bound!r})"
    )
    expect(bound == plain and hash(bound) == hash(plain), "what bind returns must equal the instance it is called on")
    expect(vars(plain) == before, "bind changed the instance it is called on; return a copy (copy.copy) instead")
    marks = [bound.fingerprint(), again.fingerprint()]
    expect(
        isinstance(marks[0], str) and marks[0] == marks[1],
        f"fingerprint must be a text and the same each time, got {marks[0]!r} and {marks[1]!r}",
    )
    expect(isinstance(bound.protects(), Protection), f"protects must return a Protection, got {type(bound.protects())}")
    _thresholds(bound, bench)


def _thresholds(method: Method, bench: Bench) -> None:
    for share, tau in method.thresholds(bench.info).items():
        try:
            Decimal(share)
        except (InvalidOperation, TypeError):
            expect(False, f"thresholds has the key {share!r}; it must be a removed fraction as text, such as '0.25'")
        expect(isinstance(tau, int | float) and tau == tau, f"thresholds[{share!r}] must be a number, got {tau!r}")


@check("least and largest score of a histogram, in this order")
def score_range(bench: Bench) -> None:
    span = bench.cls.score_range
    if span is None:
        raise Skip("declares no score_range, so no histograms are stored")
    expect(
        len(span) == 2 and all(isinstance(edge, int | float) for edge in span) and span[0] < span[1],
        f"score_range must be (least, largest), two numbers in this order, got {span!r}",
    )
