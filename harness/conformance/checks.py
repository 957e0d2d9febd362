"""The list of checks, and the ways to run it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.config.grid import option_of
from harness.conformance import declarations, decoding, pruning, scoring
from harness.conformance.fixtures import Bench
from harness.conformance.suite import Check, Outcome, Suite
from harness.errors import HarnessError
from methods import registry

CHECKS = (
    Check("description", "a name that can be typed and a summary", declarations.description, control=True),
    Check(
        "declarations",
        "phases, needs and budgets are known words; each refused budget has a reason",
        declarations.declarations,
        control=True,
    ),
    Check(
        "options",
        "typed int, float, bool or str with a default; the same again from JSON and from text",
        declarations.options,
        control=True,
    ),
    Check(
        "bind",
        "bind gives an equal copy and changes nothing; fingerprint and thresholds are well formed",
        declarations.binding,
        control=True,
    ),
    Check("score_range", "least and largest score of a histogram, in this order", declarations.histogram_range),
    Check(
        "passes",
        "extra passes have spans within the context; score_pass gives finite float32 [H, m]",
        scoring.passes,
        ("bind",),
    ),
    Check("scores", "finite float32 [H, T] in every layer; 9 query and 3 KV heads", scoring.shapes, ("bind", "passes")),
    Check(
        "step_scores",
        "while decoding: score_new gives finite float32 [V, H, n], score_step [V, H, C]",
        decoding.step_scores,
        ("scores", "declarations"),
    ),
    Check(
        "dtypes",
        "scores of bfloat16 and float64 models are finite float32 too",
        scoring.dtypes,
        ("step_scores",),
    ),
    Check(
        "read_only",
        "nothing that a method is shown is changed in place",
        scoring.read_only,
        ("step_scores",),
    ),
    Check(
        "deterministic",
        "the same context again, and from a fresh instance: the same scores",
        scoring.deterministic,
        ("scores",),
    ),
    Check(
        "contexts_apart",
        "an instance that has scored another context gives the same scores as a fresh one",
        scoring.contexts_apart,
        ("deterministic",),
    ),
    Check(
        "short_contexts",
        "one token, no token beyond the template, and lengths about the method's own window run to an answer",
        scoring.short_contexts,
        ("read_only",),
    ),
    Check(
        "sliding_windows",
        "layers with a sliding window are left out; the others are scored and pruned",
        scoring.sliding_windows,
        ("read_only",),
    ),
    Check(
        "levels",
        "measured removed is within one pair a head of the level, for each budget; protected pairs stay",
        pruning.levels,
        ("scores", "declarations"),
    ),
    Check(
        "thresholds",
        "threshold -inf removes nothing, inf leaves the protection alone",
        pruning.thresholds,
        ("scores", "declarations"),
    ),
    Check(
        "questions",
        "two questions on one context give the tokens of two separate runs, in each phase",
        decoding.questions,
        ("contexts_apart", "dtypes", "read_only"),
    ),
    Check(
        "step_rows",
        "a variant's scores while decoding do not depend on the others in the batch",
        decoding.step_rows,
        ("questions",),
    ),
    Check(
        "eviction",
        "while decoding: gone is gone, no head sees more than its capacity, protected pairs stay",
        decoding.eviction,
        ("read_only",),
    ),
    Check(
        "gathered",
        "masked decoding equals caches whose pairs are really gone, head by head (float64, 1e-9)",
        pruning.gathered,
        ("dtypes", "read_only"),
    ),
    Check(
        "together",
        "scores, masks and tokens are the same alone and in the batch of other methods, and theirs too",
        pruning.together,
        ("questions", "step_rows"),
    ),
    Check(
        "model_untouched",
        "no hook, patch or changed weight is left; the prefill is the same unwatched",
        pruning.model_untouched,
        ("dtypes", "read_only"),
    ),
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
    return name in registry.names() and registry.get(name).__module__ in registry.BUILT_IN


def check_method(
    name: str, plugin: str | Path | None = None, options: Sequence[str] = (), model: str = ""
) -> list[Outcome]:
    """The outcome of every check; see :func:`prepare`."""
    return list(prepare(name, plugin, options, model).outcomes())
