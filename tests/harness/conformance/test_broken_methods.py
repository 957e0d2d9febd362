"""Methods that are broken in one way each: the check that is meant for it finds it, and no other check fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules import module as torch_module

from harness.conformance import FAILED, Outcome, prepare
from harness.engine import eviction
from harness.engine.masked_decode import MaskedRun
from methods import registry
from methods.base import Method, Observation, Pass, Protection, Step
from methods.budgets import Ranking
from methods.observed_attention import column_sums


def norm(seen: Observation | Step) -> Tensor:
    return seen.values.float().norm(dim=-1)


@dataclass(frozen=True)
class Good(Method):
    """The norm of the value: what the broken ones are made of."""

    name: ClassVar[str] = "good"
    summary: ClassVar[str] = "norm of the value"

    def score(self, seen: Observation) -> Tensor:
        return norm(seen)


class Decoding(Good):
    """The same while decoding too."""

    phases = ("prefill", "decode", "both")

    def score_new(self, step: Step) -> Tensor:
        return norm(step)


class Flips(Decoding):
    """Sound, and of two minds: what was worst is best after the next forward."""

    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        return torch.cat([-scores, self.score_new(step)], dim=-1)


class Case(NamedTuple):
    """A broken method, the check that must find it, and a part of the reason that it gives."""

    cls: type[Method]
    check: str
    reason: str


def broken(
    name: str, check: str, reason: str, seen: Callable[[Any], Any] | None = None, *, step: Any = None, **changes: Any
) -> Case:
    """A case of a good method with other attributes; ``seen`` and ``step`` are what it scores them by."""
    if seen:
        changes["score"] = lambda _, shown: seen(shown)
    if step:
        changes["score_new"] = lambda _, shown: step(shown)
    base = Decoding if {"score_new", "score_step"} & set(changes) else Good
    return Case(type(name, (base,), {"__module__": __name__, **changes}), check, reason)


def memory(method: Method) -> dict[Any, Any]:
    """A place where an instance keeps what it should not."""
    if "memory" not in vars(method):
        object.__setattr__(method, "memory", {})
    return vars(method)["memory"]  # type: ignore[no-any-return]


class Undecorated(Good):
    strength: float = 0.5


@dataclass(frozen=True)
class ListOption(Good):
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class WholeFloat(Good):
    strength: float = 1


class Raises(Good):
    def score(self, seen: Observation) -> Tensor:
        return torch.zeros(seen.missing)  # type: ignore[attr-defined]


class SixteenAtLeast(Good):
    def score(self, seen: Observation) -> Tensor:
        scores = super().score(seen)
        return scores / scores.topk(16, dim=-1).values[:, -1:]


def binds_in_place(self: Method, info: object) -> Method:
    object.__setattr__(self, "weights", object())
    return self


def first_context_only(self: Method, seen: Observation) -> Tensor:
    known: Tensor = memory(self).setdefault((seen.layer, seen.cached), norm(seen))
    return known.clone()


def counts_steps(self: Method, step: Step) -> Tensor:
    counted = memory(self)
    counted[step.layer] = counted.get(step.layer, 0) + 1
    return norm(step) * (counted[step.layer] % 7)


def scales_keys(seen: Observation) -> Tensor:
    seen.keys.mul_(0.5)
    return norm(seen)


def scales_old_scores(self: Method, step: Step, scores: Tensor) -> Tensor:
    return torch.cat([scores.mul_(0.9), norm(step)], dim=-1)


def doubles_shared(seen: Observation) -> Tensor:
    column_sums(seen).mul_(2)
    return norm(seen)


def late_nan(step: Step) -> Tensor:
    return norm(step) / 0 * 0 if int(step.positions[0]) > 89 else norm(step)


def leaves_hook(seen: Observation) -> Tensor:
    torch_module.register_module_forward_hook(lambda module, args, out: None)
    return norm(seen)


def leaves_patch(seen: Observation) -> Tensor:
    right = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = lambda *args, **more: right(*args, **more)
    return norm(seen)


def repeating(beyond: int) -> Any:
    """``passes`` that repeat the context and so many pairs more."""
    return lambda _, cached, prefix: [Pass("again", (prefix, cached + beyond))] if cached + beyond > prefix else []


def first_layer_twice(self: Method, kept: int, cached: int, layers: int) -> list[int]:
    return [min(cached, 2 * kept), *[kept] * (layers - 1)]


COUNT = itertools.count(1)
NAN = torch.zeros(3, 68).index_put((torch.tensor(2), torch.tensor(7)), torch.tensor(float("nan")))
WIDE = {"score_pass": lambda _, seen, run: torch.zeros(3, seen.cached)}
REFUSED = dict.fromkeys(("layer", "global", "threshold"), "its mechanism is a share of the number kept")
OVER = {"budgets": ("head",), "refused": REFUSED, "mechanism_for": lambda _, kept: Protection(window=kept + 5)}
TWICE = "Something is kept between questions"
CASES = [
    broken("NoSummary", "description", "summary is empty", summary="  "),
    broken("OddBudget", "declarations", "budgets has 'heads'; the words are head, layer, global", budgets=("heads",)),
    broken("NoReason", "declarations", "say why in refused['threshold']", budgets=("head", "layer", "global")),
    broken("OddPhase", "declarations", "phases has 'decoding'", phases=("prefill", "decoding")),
    broken("PhaseAsText", "declarations", "must be a collection of words, got the text 'prefill'", phases="prefill"),
    broken("OddNeed", "declarations", "needs has 'keys'", needs=frozenset({"keys"})),
    Case(Undecorated, "options", "Undecorated.strength is annotated as an option but is none"),
    Case(ListOption, "options", "option 'sizes' has the default (1, 2)"),
    Case(WholeFloat, "options", "option 'strength' is annotated float and has a default of type int"),
    broken("BindsInPlace", "bind", "bind changed the instance", bind=binds_in_place),
    broken("BindsToNothing", "bind", "bind must return a BindsToNothing, got NoneType", bind=lambda _, info: None),
    broken("NewFingerprints", "bind", "a text and the same each time", fingerprint=lambda _: str(torch.rand(1))),
    broken("OddThresholds", "bind", "has the key 'a quarter'", thresholds=lambda _, info: {"a quarter": 1.0}),
    broken("TurnedRange", "score_range", "got (4.0, -20.0)", score_range=(4.0, -20.0)),
    broken("PassBeyond", "passes", "(3, 69) is not a span within the 68 cached pairs", passes=repeating(1), **WIDE),
    broken("PassTooWide", "passes", "expected the shape [3, 65], got [3, ", passes=repeating(0), **WIDE),
    broken("Double", "scores", "68 cached pairs ([H, T]): expected float32, got float64", lambda x: norm(x).double()),
    broken("NotANumber", "scores", "expected finite scores, got nan at [2, 7]", lambda x: norm(x) + NAN[:, : x.cached]),
    broken("QueryHeads", "scores", "expected the shape [3, 68], got [9, 68]", lambda x: x.queries.norm(dim=-1).float()),
    broken("Transposed", "scores", "expected the shape [3, 68], got [68, 3]", lambda x: norm(x).T),
    broken("NoTensor", "scores", "expected a tensor [3, 68], got list", lambda x: norm(x).tolist()),
    Case(Raises, "scores", "AttributeError: 'Observation' object has no attribute 'missing'"),
    broken("ScalesKeys", "read_only", "score changed keys of what it was shown, in place (layer 0)", scales_keys),
    broken("ScalesOldScores", "read_only", "score_step changed the old scores", score_step=scales_old_scores),
    broken("Dice", "deterministic", "instance scored the same context again", lambda x: torch.rand_like(norm(x))),
    broken("FirstContextOnly", "contexts_apart", "by one that had scored another context", score=first_context_only),
    Case(SixteenAtLeast, "short_contexts", "RuntimeError: selected index k out of range"),
    broken("Squeezed", "short_contexts", "[3, 1], got [3]", lambda x: norm(x).squeeze(-1)),
    broken("InModelDtype", "dtypes", "expected float32, got", lambda x: x.values.norm(dim=-1)),
    broken("StepInModelDtype", "dtypes", "score_new in ", step=lambda x: x.values.norm(dim=-1)),
    broken("ThreeLayers", "sliding_windows", "3 numbers for 2 layers", kept_by_layer=lambda _, kept, *__: [kept] * 3),
    broken("KeepsMore", "levels", "must have the mean 8 within one, got [16, 8, 8]", kept_by_layer=first_layer_twice),
    broken("OverProtects", "levels", "mechanism_for(1) protects 6 of 7 pairs, more than the 1", **OVER),
    broken("StepNotWritten", "step_scores", "NotImplementedError", score_new=Method.score_new),
    broken("StepInDouble", "step_scores", "5 new ([V, H, n]): expected float32", step=lambda x: norm(x).double()),
    broken("StepShape", "step_scores", "shape [3, 3, 73], got [3, 3, 5]", score_step=lambda _, step, __: norm(step)),
    broken("CountsSteps", "questions", TWICE, score_new=counts_steps),
    broken("CountsForAll", "questions", TWICE, step=lambda x: norm(x) * (next(COUNT) % 7)),
    broken("MeanOfVariants", "step_rows", "no variant may see another", step=lambda x: norm(x) - norm(x).mean(0)),
    broken(
        "LateNaN",
        "eviction",
        "are no longer finite",
        step=lambda x: norm(x) + (float("nan") if int(x.positions[0]) > 89 else 0),
    ),
    broken("DoublesShared", "read_only", "changed what it shares with", doubles_shared, needs=frozenset({"queries"})),
    broken("LeavesHook", "model_untouched", "changed in this process and left so: global module hooks", leaves_hook),
    broken("LeavesPatch", "model_untouched", "scaled_dot_product_attention", leaves_patch),
]


@pytest.fixture(autouse=True)
def clean(forgetful: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broken method leaves behind in torch is taken away again."""
    for name in ("_global_forward_hooks", "_global_forward_hooks_always_called"):
        monkeypatch.setattr(torch_module, name, type(getattr(torch_module, name))())
    monkeypatch.setattr(functional, "scaled_dot_product_attention", functional.scaled_dot_product_attention)


def outcomes(cls: type[Method]) -> dict[str, Outcome]:
    cls.name = cls.__name__.lower()
    registry.register(cls)
    return {one.check.name: one for one in prepare(cls.name).outcomes()}


def failures(found: dict[str, Outcome]) -> dict[str, str]:
    return {name: one.reason for name, one in found.items() if one.status == FAILED}


@pytest.mark.parametrize("cls", [Good, Decoding, Flips])
def test_what_the_broken_ones_are_made_of_passes(cls: type[Method]) -> None:
    assert failures(outcomes(cls)) == {}


@pytest.mark.parametrize("case", CASES, ids=[case.cls.__name__ for case in CASES])
def test_a_broken_method_is_found_by_the_check_meant_for_it_alone(case: Case) -> None:
    found = failures(outcomes(case.cls))
    refused = {name for name, reason in found.items() if "changed in place what a layer showed it" in reason}
    assert set(found) - refused | {case.check} == {case.check}, found  # the engine itself refuses who writes
    assert case.reason in found[case.check]


def test_what_needs_a_failed_check_is_skipped_and_says_so() -> None:
    found = outcomes(next(case.cls for case in CASES if case.cls.__name__ == "Double"))
    assert found["gathered"].reason == "needs dtypes to pass"
    assert found["declarations"].status == "passed"


def test_an_exception_names_the_line_of_the_method_and_none_of_the_harness() -> None:
    reason = outcomes(Raises)["scores"].reason
    assert __file__ in reason and "in score: return torch.zeros(seen.missing)" in reason
    assert "harness/conformance" not in reason.replace(__file__, "")


def test_an_exception_below_torch_names_the_line_of_the_method() -> None:
    assert "in score: return scores / scores.topk(16" in outcomes(SixteenAtLeast)["short_contexts"].reason


# Four checks hold by the engine's doing, whatever a method returns. They must see an engine that is broken.


def hides_less(run: MaskedRun, keep: Tensor) -> tuple[Any, ...]:
    return run, keep | (torch.arange(keep.shape[-1]) == 30)


def forgives(policy: Any, scores: Tensor, keep: Tensor, *rest: Any) -> tuple[Any, ...]:
    return policy, scores, torch.ones_like(keep), *rest


def keeps_one_more(policy: Any, *rest: Any) -> tuple[Any, ...]:
    return replace(policy, keep_tokens=policy.keep_tokens + 1), *rest


def two_more(ranking: Ranking, kept: int) -> tuple[Any, ...]:
    return ranking, kept + 2


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "cls", "check", "reason"),
    [
        (MaskedRun, "_bias", hides_less, Good, "gathered", "from those of caches whose pairs are really gone"),
        (eviction, "_shrink", forgives, Flips, "eviction", "pairs that were gone are back"),
        (eviction, "_shrink", keeps_one_more, Decoding, "eviction", "its capacity is 34"),
        (Ranking, "global_", two_more, Good, "levels", "global 0.25"),
    ],
)
def test_a_broken_engine_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any, cls: type[Method], check: str, reason: str
) -> None:
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: right(*wrong(*given)))
    assert reason in failures(outcomes(cls))[check]


def test_a_threshold_that_ignores_protection_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranking, "threshold", lambda self, tau: self.scores >= tau)
    found = outcomes(type("Windowed", (Good,), {"protection": Protection(window=9)}))
    assert "expected 9 of 66 pairs kept in every head (protection alone), got" in failures(found)["thresholds"]
