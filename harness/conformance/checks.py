"""The list of checks, and the ways to run it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.config.grid import option_of
from harness.conformance import declarations, decoding, pruning, scoring
from harness.conformance.fixtures import Bench
from harness.conformance.suite import Outcome, Suite
from harness.errors import HarnessError
from methods import registry

CHECKS = (
    declarations.description,
    declarations.declarations,
    declarations.options,
    declarations.bind,
    declarations.score_range,
    scoring.passes,
    scoring.scores,
    decoding.step_scores,
    scoring.dtypes,
    scoring.read_only,
    scoring.deterministic,
    scoring.contexts_apart,
    scoring.short_contexts,
    scoring.sliding_windows,
    pruning.levels,
    pruning.thresholds,
    decoding.questions,
    decoding.step_rows,
    decoding.eviction,
    pruning.gathered,
    pruning.together,
    pruning.model_untouched,
)


def prepare(name: str, plugin: str | Path | None = None, options: Sequence[str] = (), model: str = "") -> Suite:
    """The checks of method ``name``, ready to run.

    plugin   a Python file that registers the method, loaded unless the name is known already
    options  ``NAME.OPTION=VALUE`` as on the command line, one value each
    model    take the shape of this model (random weights), for methods that need weights for it

    A user's mistake, such as an unknown name, is a :class:`HarnessError` or :class:`MethodError`.
    """
    if plugin is not None and (name not in registry.names() or _built_in(name)):
        registry.load_plugin(Path(plugin))
        if _built_in(name):  # else a plugin's own method would seem to have passed
            raise HarnessError(
                f"method {name!r} is built in, not of plugin {plugin}; name a method that the file registers"
            )
    given: dict[str, str] = {}
    for option in map(option_of, options):
        if option.method != name:
            raise HarnessError(f"--option {option.method}.{option.name} is not one of {name}'s; check-method takes one")
        if option.name in given:
            raise HarnessError(f"--option {name}.{option.name} is given twice; check-method takes one value of each")
        given[option.name] = option.value
    return Suite(Bench(name, given, model), CHECKS)


def _built_in(name: str) -> bool:
    return name in registry.BUILT_IN


def check_method(
    name: str, plugin: str | Path | None = None, options: Sequence[str] = (), model: str = ""
) -> list[Outcome]:
    """The outcome of every check; see :func:`prepare`."""
    return list(prepare(name, plugin, options, model).outcomes())
