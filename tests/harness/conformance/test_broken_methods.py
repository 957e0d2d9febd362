"""Methods that are broken in one way each: the check that is meant for it finds it, and no other check fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

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


class NoSummary(Good):
    summary = "  "


class OddBudget(Good):
    budgets = ("head", "heads")


class NoReason(Good):
    budgets = ("head", "layer", "global")


class OddPhase(Good):
    phases = ("prefill", "decoding")


class PhaseAsText(Good):
    phases = "prefill"  # type: ignore[assignment]


class OddNeed(Good):
    needs = frozenset({"keys"})


class Undecorated(Good):
    strength: float = 0.5


@dataclass(frozen=True)
class ListOption(Good):
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class WholeFloat(Good):
    strength: float = 1


class BindsInPlace(Good):
    def bind(self, info: object) -> Method:
        object.__setattr__(self, "weights", object())
        return self


class BindsToNothing(Good):
    def bind(self, info: object) -> Method:
        return None  # type: ignore[return-value]


class ChangingFingerprint(Good):
    def fingerprint(self) -> str:
        return str(torch.rand(1))


class OddThresholds(Good):
    def thresholds(self, info: object) -> dict[str, float]:
        return {"a quarter": -4.0}


class TurnedRange(Good):
    score_range = (4.0, -20.0)


class PassBeyond(Good):
    def passes(self, cached: int, prefix: int) -> list[Pass]:
        return [Pass("again", (prefix, cached + 1))]

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        return torch.zeros(3, run.target[1] - run.target[0])


class PassTooWide(Good):
    def passes(self, cached: int, prefix: int) -> list[Pass]:
        return [Pass("again", (prefix, cached))] if cached > prefix else []

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        return torch.zeros(3, seen.cached)


class Double(Good):
    def score(self, seen: Observation) -> Tensor:
        return super().score(seen).double()


class NotANumber(Good):
    def score(self, seen: Observation) -> Tensor:
        scores = super().score(seen)
        scores[2, 7] = float("nan")
        return scores


class QueryHeads(Good):
    def score(self, seen: Observation) -> Tensor:
        return seen.queries.float().norm(dim=-1)


class Transposed(Good):
    def score(self, seen: Observation) -> Tensor:
        return super().score(seen).T


class NoTensor(Good):
    def score(self, seen: Observation) -> Tensor:
        return super().score(seen).tolist()  # type: ignore[return-value]


class Raises(Good):
    def score(self, seen: Observation) -> Tensor:
        return torch.zeros(seen.missing)  # type: ignore[attr-defined]


class ScalesKeys(Good):
    def score(self, seen: Observation) -> Tensor:
        return seen.keys.mul_(0.5).float().norm(dim=-1)


class ScalesOldScores(Decoding):
    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        return torch.cat([scores.mul_(0.9), self.score_new(step)], dim=-1)


class Dice(Good):
    def score(self, seen: Observation) -> Tensor:
        return torch.rand(seen.keys.shape[:2])


class FirstContextOnly(Good):
    def score(self, seen: Observation) -> Tensor:
        known = memory(self).setdefault((seen.layer, seen.cached), super().score(seen))
        return known.clone()  # type: ignore[no-any-return]


class SixteenAtLeast(Good):
    def score(self, seen: Observation) -> Tensor:
        scores = super().score(seen)
        return scores / scores.topk(16, dim=-1).values[:, -1:]


class Squeezed(Good):
    def score(self, seen: Observation) -> Tensor:
        return super().score(seen).squeeze(-1)


class InModelDtype(Good):
    def score(self, seen: Observation) -> Tensor:
        return seen.values.norm(dim=-1)


class StepInModelDtype(Decoding):
    def score_new(self, step: Step) -> Tensor:
        return step.values.norm(dim=-1)


class ThreeLayers(Good):
    def kept_by_layer(self, kept: int, cached: int, layers: int) -> list[int]:
        return [kept, kept, kept]


class KeepsMore(Good):
    def kept_by_layer(self, kept: int, cached: int, layers: int) -> list[int]:
        return [min(cached, 2 * kept), *[kept] * (layers - 1)]


class OverProtects(Good):
    budgets = ("head",)
    refused = dict.fromkeys(("layer", "global", "threshold"), "its mechanism is a share of the number kept")

    def mechanism_for(self, kept: int) -> Protection:
        return Protection(window=kept + 5)


class StepNotWritten(Decoding):
    score_new = Method.score_new


class StepInDouble(Decoding):
    def score_new(self, step: Step) -> Tensor:
        return super().score_new(step).double()


class StepShape(Decoding):
    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        return self.score_new(step)


class CountsSteps(Decoding):
    def score_new(self, step: Step) -> Tensor:
        counted = memory(self)
        counted[step.layer] = counted.get(step.layer, 0) + 1
        return super().score_new(step) * (counted[step.layer] % 7)


COUNT = [0]


class CountsForAll(Decoding):
    def score_new(self, step: Step) -> Tensor:
        COUNT[0] += 1
        return super().score_new(step) * (COUNT[0] % 7)


class MeanOfVariants(Decoding):
    def score_new(self, step: Step) -> Tensor:
        scores = super().score_new(step)
        return scores - scores.mean(dim=0)


class LateNaN(Decoding):
    def score_new(self, step: Step) -> Tensor:
        scores = super().score_new(step)
        return scores / 0 * 0 if int(step.positions[0]) > 89 else scores


class DoublesShared(Good):
    needs = frozenset({"queries"})

    def score(self, seen: Observation) -> Tensor:
        column_sums(seen).mul_(2)
        return super().score(seen)


class LeavesHook(Good):
    def score(self, seen: Observation) -> Tensor:
        torch_module.register_module_forward_hook(lambda module, args, out: None)
        return super().score(seen)


class LeavesPatch(Good):
    def score(self, seen: Observation) -> Tensor:
        right = functional.scaled_dot_product_attention
        functional.scaled_dot_product_attention = lambda *args, **more: right(*args, **more)
        return super().score(seen)


#: check -> methods that it must find, and a part of the reason it gives
BROKEN: dict[str, list[tuple[type[Method], str]]] = {
    "description": [(NoSummary, "summary is empty")],
    "declarations": [
        (OddBudget, "budgets has 'heads'; the words are head, layer, global, threshold"),
        (NoReason, "say why in refused['threshold']"),
        (OddPhase, "phases has 'decoding'"),
        (PhaseAsText, "must be a collection of words, got the text 'prefill'"),
        (OddNeed, "needs has 'keys'"),
    ],
    "options": [
        (Undecorated, "Undecorated.strength is annotated as an option but is none"),
        (ListOption, "option 'sizes' has the default (1, 2)"),
        (WholeFloat, "option 'strength' is annotated float and has a default of type int"),
    ],
    "bind": [
        (BindsInPlace, "bind changed the instance"),
        (BindsToNothing, "bind must return a BindsToNothing, got NoneType"),
        (ChangingFingerprint, "fingerprint must be a text and the same each time"),
        (OddThresholds, "thresholds has the key 'a quarter'"),
    ],
    "score_range": [(TurnedRange, "got (4.0, -20.0)")],
    "passes": [
        (PassBeyond, "target (3, 69) is not a span within the 68 cached pairs"),
        (PassTooWide, "expected the shape [3, 65], got [3, "),
    ],
    "scores": [
        (Double, "layer 0, 68 cached pairs ([H, T]): expected float32, got float64"),
        (NotANumber, "expected finite scores, got nan at [2, 7]"),
        (QueryHeads, "expected the shape [3, 68], got [9, 68]"),
        (Transposed, "expected the shape [3, 68], got [68, 3]"),
        (NoTensor, "expected a tensor [3, 68], got list"),
        (Raises, "AttributeError: 'Observation' object has no attribute 'missing'"),
    ],
    "read_only": [
        (ScalesKeys, "score changed keys of what it was shown, in place (layer 0)"),
        (ScalesOldScores, "score_step changed the old scores"),
    ],
    "deterministic": [(Dice, "the same instance scored the same context again")],
    "contexts_apart": [(FirstContextOnly, "by one that had scored another context")],
    "short_contexts": [(SixteenAtLeast, "RuntimeError: selected index k out of range"), (Squeezed, "[3, 1], got [3]")],
    "dtypes": [(InModelDtype, "expected float32, got"), (StepInModelDtype, "score_new in ")],
    "sliding_windows": [(ThreeLayers, "kept_by_layer gave 3 numbers for 2 layers")],
    "levels": [
        (KeepsMore, "must have the mean 8 within one, got [16, 8, 8]"),
        (OverProtects, "mechanism_for(1) protects 6 of 7 pairs, more than the 1"),
    ],
    "step_scores": [
        (StepNotWritten, "NotImplementedError"),
        (StepInDouble, "score_new, layer 0, 3 variants, 68 old pairs, 5 new ([V, H, n]): expected float32"),
        (StepShape, "expected the shape [3, 3, 73], got [3, 3, 5]"),
    ],
    "questions": [
        (CountsSteps, "Something is kept between questions"),
        (CountsForAll, "Something is kept between questions"),
    ],
    "step_rows": [(MeanOfVariants, "no variant may see another")],
    "eviction": [(LateNaN, "are no longer finite")],
    "together": [(DoublesShared, "scores of h2o differ alone and beside doublesshared")],
    "model_untouched": [
        (LeavesHook, "changed in this process and left so: global module hooks"),
        (LeavesPatch, "scaled_dot_product_attention"),
    ],
}
CASES = [(check, cls, reason) for check, cases in BROKEN.items() for cls, reason in cases]


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


@pytest.mark.parametrize(("check", "cls", "reason"), CASES, ids=[cls.__name__ for _, cls, _ in CASES])
def test_a_broken_method_is_found_by_the_check_meant_for_it_alone(check: str, cls: type[Method], reason: str) -> None:
    found = failures(outcomes(cls))
    assert set(found) == {check}, found
    assert reason in found[check]


def test_what_needs_a_failed_check_is_skipped_and_says_so() -> None:
    found = outcomes(Double)
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
