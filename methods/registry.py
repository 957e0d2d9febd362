"""Names to methods: ``@register``, the entry-point group ``kvprune.methods``, and plugin files."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from methods.base import Method, MethodError, ModelInfo

ENTRY_POINTS = "kvprune.methods"
POSITIONS = ("original", "cache")
#: values of the option ``compat``
COMPAT = ("", "kvpress")
#: built-in methods, in the order of listings, and the module that registers each
BUILT_IN = {
    "full": "methods.full",
    "random": "methods.random",
    "knorm": "methods.knorm",
    "streaming_llm": "methods.streaming_llm",
    "streaming_llm_rerotated": "methods.streaming_llm_rerotated",
    "h2o": "methods.h2o",
    "tova": "methods.tova",
    "observed_attention": "methods.observed_attention",
    "expected_attention": "methods.expected_attention",
    "expected_attention_plain": "methods.expected_attention",
    "snapkv": "methods.snapkv",
    "pyramidkv": "methods.pyramidkv",
    "keydiff": "methods.keydiff",
    "kvzip": "methods.kvzip",
    "kvzip_plus": "methods.kvzip_plus",
    "kvzap_linear": "methods.kvzap.method",
    "kvzap_mlp": "methods.kvzap.method",
}

MethodClass = TypeVar("MethodClass", bound=type[Method])


class Alias(NamedTuple):
    """A name for another method, which is chosen when the model is known."""

    summary: str
    resolve: Callable[[ModelInfo], str]


_methods: dict[str, type[Method]] = {}
_aliases: dict[str, Alias] = {}
_broken: dict[str, str] = {}


def register(cls: MethodClass) -> MethodClass:
    """Class decorator: make the method known under its ``name``. A name that is taken is an error."""
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise MethodError(f"{cls!r} is not a subclass of methods.base.Method; put @register above one that is")
    if not isinstance(cls.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", cls.name):
        raise MethodError(f"method name {cls.name!r} of {cls.__qualname__} must be lower case letters, digits and _")
    if cls.positions not in POSITIONS:
        raise MethodError(f"positions of {cls.__qualname__} must be {' or '.join(POSITIONS)}, got {cls.positions!r}")
    taken = _methods.get(cls.name)
    if (taken is not None and taken is not cls) or cls.name in _aliases:
        where = taken.__module__ if taken else "an alias"
        raise MethodError(f"method name {cls.name!r} is taken (by {where}); give {cls.__qualname__} another name")
    _methods[cls.name] = cls
    return cls


def register_alias(name: str, summary: str, resolve: Callable[[ModelInfo], str]) -> None:
    """Make ``name`` an alias of the method that ``resolve`` returns for a model."""
    if name in _methods or name in _aliases:
        raise MethodError(f"method name {name!r} is taken; give the alias another name")
    _aliases[name] = Alias(summary, resolve)


@cache
def load_all() -> None:
    """Import the built-in methods and those that installed packages offer. An entry point that fails is remembered
    and reported when its name is looked up."""
    for module in BUILT_IN.values():
        importlib.import_module(module)
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except (Exception, SystemExit) as error:  # any failure of foreign code is that plugin's, not ours
            _broken[point.name] = f"{type(error).__name__}: {error}"


def load_plugin(path: Path) -> None:
    """Run a Python file that registers methods (``--plugin FILE.py``)."""
    load_all()
    if not path.is_file():
        raise MethodError(f"plugin {path} is not a file; give the path of a Python file with a @register class")
    spec = importlib.util.spec_from_file_location(f"kvprune_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise MethodError(f"plugin {path} cannot be imported; give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    before, aliases_before = set(_methods), set(_aliases)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        for known, old in ((_methods, before), (_aliases, aliases_before)):
            for name in set(known) - old:  # none of a file that failed
                del known[name]
        if isinstance(error, MethodError):
            raise
        raise MethodError(
            f"plugin {path} failed to load: {type(error).__name__}: {error}{_line_of(error, path)}"
        ) from error
    if set(_methods) == before:
        raise MethodError(f"plugin {path} registered no method; put @register above its Method class")


def _line_of(error: BaseException, path: Path) -> str:
    """Which line of a plugin raised, as far as it was one of its own."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def names() -> list[str]:
    """Registered names: the built-in ones in their order, then others as they came; aliases are not among them."""
    load_all()
    return [*BUILT_IN, *(name for name in _methods if name not in BUILT_IN)]


def aliases() -> dict[str, Alias]:
    load_all()
    return dict(_aliases)


def get(name: str) -> type[Method]:
    """The class registered under ``name``. Unknown: :class:`MethodError` with the names, nearest first."""
    load_all()
    if name in _methods:
        return _methods[name]
    if name in _broken:
        raise MethodError(f"method {name!r} comes from a plugin that failed to load: {_broken[name]}")
    if name in _aliases:
        raise MethodError(f"{name!r} is an alias that depends on the model; give one of {', '.join(_methods)}")
    raise MethodError(unknown("method", name, [*_methods, *_aliases]))


def resolve(name: str, info: ModelInfo) -> str:
    """The registered name that ``name`` means for this model: itself, or the method that the alias resolves to."""
    load_all()
    return _aliases[name].resolve(info) if name in _aliases else get(name).name


def unknown(kind: str, name: str, known: list[str]) -> str:
    """The text of an error about an unknown name: what was given and what there is, nearest first."""
    near = difflib.get_close_matches(name, known, n=len(known), cutoff=0.0)
    return f"unknown {kind} {name!r}; known, nearest first: {', '.join(near)}"


def build(name: str, options: dict[str, str]) -> Method:
    """An instance of method ``name`` with options given as text, each converted to its field's type."""
    cls = get(name)
    known = cls.option_fields()
    values: dict[str, Any] = {}
    for option, text in options.items():
        if option not in known:
            own = [one for one in known if one != "compat"]
            offered = unknown(f"option of {name}", option, [*own, "compat"]) if own else f"{name} takes no options"
            raise MethodError(f"{offered}; got {name}.{option}={text}")
        values[option] = _convert(f"{name}.{option}", text, type(known[option].default))
    if values.get("compat", "") not in COMPAT:
        raise MethodError(f"{name}.compat must be empty or kvpress, got {values['compat']!r}")
    return cls(**values)


def _convert(label: str, text: str, kind: type) -> Any:
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise MethodError(f"{label} must be true or false, got {text!r}")
        return words[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise MethodError(f"{label} must be {kind.__name__}, got {text!r}") from None
