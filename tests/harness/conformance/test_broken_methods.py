"""Methods that are broken in one way each: the check that is meant for it finds it, and no other check fails."""

from __future__ import annotations

import itertools
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


@dataclass(frozen=True)
class Good(Method):
    """The norm of the value: what the broken ones are made of."""

    name: ClassVar[str] = "good"
    summary: ClassVar[str] = "norm of the value"

    def score(self, seen: Observation) -> Tensor:
        return seen.values.float().norm(dim=-1)


class Decoding(Good):
    """The same while decoding too."""

    phases = ("prefill", "decode", "both")

    def score_new(self, step: Step) -> Tensor:
        return step.values.float().norm(dim=-1)


class Flips(Decoding):
    """Sound, and of two minds: what was worst is best after the next forward."""

    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        return torch.cat([-scores, self.score_new(step)], dim=-1)


def memory(method: Method) -> dict[Any, Any]:
    """A place where an instance keeps what it should not."""
    if "memory" not in vars(method):
        object.__setattr__(method, "memory", {})
    return vars(method)["memory"]  # type: ignore[no-any-return]


def norm(values: Tensor) -> Tensor:
    return values.float().norm(dim=-1)


class Case(NamedTuple):
    """A broken method, the check that must find it, and a part of the reason that it gives."""

    cls: type[Method]
    check: str
    reason: str


def broken(name: str, check: str, reason: str, base: type[Method] = Good, **changes: Any) -> Case:
    """A case of ``base`` with these attributes instead of its own."""
    return Case(type(name, (base,), {"__module__": __name__, **changes}), check, reason)


class Undecorated(Good):
    strength: float = 0.5


@dataclass(frozen=True)
class ListOption(Good):
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class WholeFloat(Good):
    strength: float = 1


def binds_in_place(self: Method, info: object) -> Method:
    object.__setattr__(self, "weights", object())
    return self


def not_a_number(self: Method, seen: Observation) -> Tensor:
    scores = norm(seen.values)
    scores[2, 7] = float("nan")
    return scores


class Raises(Good):
    def score(self, seen: Observation) -> Tensor:
        return torch.zeros(seen.missing)  # type: ignore[attr-defined]


class SixteenAtLeast(Good):
    def score(self, seen: Observation) -> Tensor:
        scores = super().score(seen)
        return scores / scores.topk(16, dim=-1).values[:, -1:]


def first_context_only(self: Method, seen: Observation) -> Tensor:
    known: Tensor = memory(self).setdefault((seen.layer, seen.cached), norm(seen.values))
    return known.clone()


def counts_steps(self: Method, step: Step) -> Tensor:
    counted = memory(self)
    counted[step.layer] = counted.get(step.layer, 0) + 1
    return norm(step.values) * (counted[step.layer] % 7)


COUNT = itertools.count(1)


def late_nan(self: Method, step: Step) -> Tensor:
    scores = norm(step.values)
    return scores / 0 * 0 if int(step.positions[0]) > 89 else scores


def doubles_shared(self: Method, seen: Observation) -> Tensor:
    column_sums(seen).mul_(2)
    return norm(seen.values)


def leaves_hook(self: Method, seen: Observation) -> Tensor:
    torch_module.register_module_forward_hook(lambda module, args, out: None)
    return norm(seen.values)


def leaves_patch(self: Method, seen: Observation) -> Tensor:
    right = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = lambda *args, **more: right(*args, **more)
    return norm(seen.values)


CASES = [
    broken("NoSummary", "description", "summary is empty", summary="  "),
    broken(
        "OddBudget",
        "declarations",
        "budgets has 'heads'; the words are head, layer, global, threshold",
        budgets=("head", "heads"),
    ),
    broken("NoReason", "declarations", "say why in refused['threshold']", budgets=("head", "layer", "global")),
    broken("OddPhase", "declarations", "phases has 'decoding'", phases=("prefill", "decoding")),
    broken("PhaseAsText", "declarations", "must be a collection of words, got the text 'prefill'", phases="prefill"),
    broken("OddNeed", "declarations", "needs has 'keys'", needs=frozenset({"keys"})),
    Case(Undecorated, "options", "Undecorated.strength is annotated as an option but is none"),
    Case(ListOption, "options", "option 'sizes' has the default (1, 2)"),
    Case(WholeFloat, "options", "option 'strength' is annotated float and has a default of type int"),
    broken("BindsInPlace", "bind", "bind changed the instance", bind=binds_in_place),
    broken("BindsToNothing", "bind", "bind must return a BindsToNothing, got NoneType", bind=lambda self, info: None),
    broken(
        "ChangingFingerprint",
        "bind",
        "fingerprint must be a text and the same each time",
        fingerprint=lambda self: str(torch.rand(1)),
    ),
    broken(
        "OddThresholds", "bind", "thresholds has the key 'a quarter'", thresholds=lambda self, info: {"a quarter": -4.0}
    ),
    broken("TurnedRange", "score_range", "got (4.0, -20.0)", score_range=(4.0, -20.0)),
    broken(
        "PassBeyond",
        "passes",
        "target (3, 69) is not a span within the 68 cached pairs",
        passes=lambda self, cached, prefix: [Pass("again", (prefix, cached + 1))],
        score_pass=lambda self, seen, run: torch.zeros(3, run.target[1] - run.target[0]),
    ),
    broken(
        "PassTooWide",
        "passes",
        "expected the shape [3, 65], got [3, ",
        passes=lambda self, cached, prefix: [Pass("again", (prefix, cached))] if cached > prefix else [],
        score_pass=lambda self, seen, run: torch.zeros(3, seen.cached),
    ),
    broken(
        "Double",
        "scores",
        "layer 0, 68 cached pairs ([H, T]): expected float32, got float64",
        score=lambda self, seen: norm(seen.values).double(),
    ),
    broken("NotANumber", "scores", "expected finite scores, got nan at [2, 7]", score=not_a_number),
    broken(
        "QueryHeads", "scores", "expected the shape [3, 68], got [9, 68]", score=lambda self, seen: norm(seen.queries)
    ),
    broken(
        "Transposed", "scores", "expected the shape [3, 68], got [68, 3]", score=lambda self, seen: norm(seen.values).T
    ),
    broken(
        "NoTensor", "scores", "expected a tensor [3, 68], got list", score=lambda self, seen: norm(seen.values).tolist()
    ),
    Case(Raises, "scores", "AttributeError: 'Observation' object has no attribute 'missing'"),
    broken(
        "ScalesKeys",
        "read_only",
        "score changed keys of what it was shown, in place (layer 0)",
        score=lambda self, seen: norm(seen.keys.mul_(0.5)),
    ),
    broken(
        "ScalesOldScores",
        "read_only",
        "score_step changed the old scores",
        Decoding,
        score_step=lambda self, step, scores: torch.cat([scores.mul_(0.9), self.score_new(step)], dim=-1),
    ),
    broken(
        "Dice",
        "deterministic",
        "the same instance scored the same context again",
        score=lambda self, seen: torch.rand(seen.keys.shape[:2]),
    ),
    broken("FirstContextOnly", "contexts_apart", "by one that had scored another context", score=first_context_only),
    Case(SixteenAtLeast, "short_contexts", "RuntimeError: selected index k out of range"),
    broken("Squeezed", "short_contexts", "[3, 1], got [3]", score=lambda self, seen: norm(seen.values).squeeze(-1)),
    broken("InModelDtype", "dtypes", "expected float32, got", score=lambda self, seen: seen.values.norm(dim=-1)),
    broken(
        "StepInModelDtype", "dtypes", "score_new in ", Decoding, score_new=lambda self, step: step.values.norm(dim=-1)
    ),
    broken(
        "ThreeLayers",
        "sliding_windows",
        "kept_by_layer gave 3 numbers for 2 layers",
        kept_by_layer=lambda self, kept, cached, layers: [kept] * 3,
    ),
    broken(
        "KeepsMore",
        "levels",
        "must have the mean 8 within one, got [16, 8, 8]",
        kept_by_layer=lambda self, kept, cached, layers: [min(cached, 2 * kept), *[kept] * (layers - 1)],
    ),
    broken(
        "OverProtects",
        "levels",
        "mechanism_for(1) protects 6 of 7 pairs, more than the 1",
        budgets=("head",),
        refused=dict.fromkeys(("layer", "global", "threshold"), "its mechanism is a share of the number kept"),
        mechanism_for=lambda self, kept: Protection(window=kept + 5),
    ),
    broken("StepNotWritten", "step_scores", "NotImplementedError", Decoding, score_new=Method.score_new),
    broken(
        "StepInDouble",
        "step_scores",
        "score_new, layer 0, 3 variants, 68 old pairs, 5 new ([V, H, n]): expected float32",
        Decoding,
        score_new=lambda self, step: norm(step.values).double(),
    ),
    broken(
        "StepShape",
        "step_scores",
        "expected the shape [3, 3, 73], got [3, 3, 5]",
        Decoding,
        score_step=lambda self, step, scores: self.score_new(step),
    ),
    broken("CountsSteps", "questions", "Something is kept between questions", Decoding, score_new=counts_steps),
    broken(
        "CountsForAll",
        "questions",
        "Something is kept between questions",
        Decoding,
        score_new=lambda self, step: norm(step.values) * (next(COUNT) % 7),
    ),
    broken(
        "MeanOfVariants",
        "step_rows",
        "no variant may see another",
        Decoding,
        score_new=lambda self, step: norm(step.values) - norm(step.values).mean(dim=0),
    ),
    broken("LateNaN", "eviction", "are no longer finite", Decoding, score_new=late_nan),
    broken(
        "DoublesShared",
        "together",
        "scores of h2o differ alone and beside doublesshared",
        needs=frozenset({"queries"}),
        score=doubles_shared,
    ),
    broken(
        "LeavesHook", "model_untouched", "changed in this process and left so: global module hooks", score=leaves_hook
    ),
    broken("LeavesPatch", "model_untouched", "scaled_dot_product_attention", score=leaves_patch),
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
    assert set(found) == {case.check}, found
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


def engine_failures(name: str = "knorm") -> dict[str, str]:
    return failures({one.check.name: one for one in prepare(name).outcomes()})


def test_pairs_that_are_masked_too_little_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaky(self: MaskedRun, keep: Tensor) -> Tensor | None:
        keep = keep.clone()
        keep[..., 30] = True
        return right(self, keep)

    right = MaskedRun._bias
    monkeypatch.setattr(MaskedRun, "_bias", leaky)
    assert "from those of caches whose pairs are really gone" in engine_failures()["gathered"]


def test_pairs_that_come_back_while_decoding_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgiving(policy: Any, scores: Tensor, keep: Tensor, new: int, prefix: int) -> Tensor:
        return shrink(policy, scores, torch.ones_like(keep), new, prefix)

    shrink = eviction._shrink
    monkeypatch.setattr(eviction, "_shrink", forgiving)
    assert "pairs that were gone are back" in failures(outcomes(Flips))["eviction"]


def test_a_capacity_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(policy: Any, *rest: Any) -> Tensor:
        return shrink(replace(policy, keep_tokens=policy.keep_tokens + 1), *rest)

    shrink = eviction._shrink
    monkeypatch.setattr(eviction, "_shrink", generous)
    assert "its capacity is 34" in engine_failures()["eviction"]


def test_a_threshold_that_ignores_protection_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranking, "threshold", lambda self, tau: self.scores >= tau)
    found = outcomes(type("Windowed", (Good,), {"protection": Protection(window=9)}))
    assert "expected 9 of 66 pairs kept in every head (protection alone), got" in failures(found)["thresholds"]


def test_a_level_that_is_missed_by_two_pairs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Ranking.global_
    monkeypatch.setattr(Ranking, "global_", lambda self, kept: right(self, kept + 2))
    assert "global 0.25" in engine_failures()["levels"]
