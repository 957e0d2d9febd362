"""Benchmarks by name: built in, from installed packages (entry points), or registered at run time."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeVar

from benchmarks.base import Benchmark, BenchmarkError, nearest_first

#: an installed package offers a benchmark as ``[project.entry-points."kvprune.benchmarks"] name = "module:Class"``
ENTRY_POINT_GROUP = "kvprune.benchmarks"

#: built-in benchmarks and the module that registers each, imported when first requested
BUILT_IN: dict[str, str] = {
    "aime25": "benchmarks.aime25.benchmark",
    "fidelity": "benchmarks.fidelity.benchmark",
    "longbench": "benchmarks.longbench.benchmark",
    "longbench_e": "benchmarks.longbench.benchmark",
    "multi-question": "benchmarks.multi_question.benchmark",
    "needles": "benchmarks.needles",
    "ruler": "benchmarks.ruler.benchmark",
    "ruler-4k": "benchmarks.ruler.published",
    "ruler-8k": "benchmarks.ruler.published",
    "ruler-16k": "benchmarks.ruler.published",
}

_classes: dict[str, type[Benchmark]] = {}
_load_errors: dict[str, Exception] = {}
_tried: set[tuple[str, str]] = set()

B = TypeVar("B", bound=type[Benchmark])


def register(cls: B) -> B:
    """Class decorator: makes a :class:`Benchmark` available under its ``name``.

    Registering the same class again (a reloaded module) replaces it. Raises :class:`BenchmarkError` if the name is
    empty or belongs to another class.
    """
    if not cls.name:
        raise BenchmarkError(f"{cls.__name__} has no name: set the class variable `name`, then register it")
    home = BUILT_IN.get(cls.name)
    known = _classes.get(cls.name)
    same = known is not None and (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
    if (known is not None and not same) or (home is not None and cls.__module__ != home):
        owner = f"{known.__module__}.{known.__qualname__}" if known is not None else home
        raise BenchmarkError(
            f"the benchmark name {cls.name!r} is taken by {owner}; choose another. "
            f"Taken, nearest first: {', '.join(nearest_first(cls.name, set(BUILT_IN) | set(_classes)))}"
        )
    _classes[cls.name] = cls
    return cls


def get(name: str) -> Benchmark:
    """An instance of the benchmark ``name``, or of the one that ``name:suffix`` names
    (:meth:`Benchmark.with_suffix`). Raises :class:`BenchmarkError` on an unknown name, or on one whose plugin did not
    load (with the plugin's own error)."""
    name, colon, suffix = name.partition(":")
    if colon:
        return get(name).with_suffix(suffix)
    if name not in _classes and name in BUILT_IN:
        import_module(BUILT_IN[name])
    if name not in _classes:
        _load_entry_points()
    if name in _classes:
        return _classes[name]()
    if name in _load_errors:
        error = _load_errors[name]
        raise BenchmarkError(
            f"the benchmark {name!r} comes from a plugin that did not load ({type(error).__name__}: {error}); "
            "repair or uninstall the package that offers it"
        ) from error
    raise BenchmarkError(f"unknown benchmark {name!r}; known, nearest first: {', '.join(nearest_first(name, names()))}")


def names() -> list[str]:
    """Names that :func:`get` takes, sorted; plugins that did not load are left out."""
    _load_entry_points()
    return sorted(set(BUILT_IN) | set(_classes))


def _load_entry_points() -> None:
    """Load plugins that are not loaded yet. A failure is kept with its error, so that the others still work."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if (point.name, point.value) in _tried:
            continue
        _tried.add((point.name, point.value))
        try:
            cls = point.load()
            if not (isinstance(cls, type) and issubclass(cls, Benchmark)):
                raise TypeError(f"{point.value} is not a subclass of benchmarks.base.Benchmark")
            if cls.name != point.name:
                raise ValueError(f"{point.value} is named {cls.name!r}, its entry point {point.name!r}")
            register(cls)
        except Exception as error:  # whatever a plugin raises is shown when it is requested
            _load_errors[point.name] = error
