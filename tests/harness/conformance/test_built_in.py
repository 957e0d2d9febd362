"""Every built-in method passes every check, and is skipped only where it says that a check is not for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.conformance import CHECKS, FAILED, SKIPPED, check_method, models, prepare
from harness.errors import HarnessError
from methods import registry
from methods.base import MethodError, ModelInfo
from methods.kvzap.files import save
from methods.kvzap.surrogate import Surrogate, needed_shape

NAMES = registry.names()


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_method_passes_every_check(name: str, tmp_path: Path) -> None:
    outcomes = check_method(name, options=small_weights(name, tmp_path))
    assert [one.check.name for one in outcomes] == [check.name for check in CHECKS]
    assert {one.check.name: one.reason for one in outcomes if one.status == FAILED} == {}
    assert {one.check.name for one in outcomes if one.status == SKIPPED} == expected_skips(name)


def small_weights(name: str, folder: Path) -> list[str]:
    """A surrogate with random weights for the tiny model, for the methods that need one."""
    if not name.startswith("kvzap_"):
        return []
    torch.manual_seed(0)
    shape = needed_shape(models.info(models.tiny(), "tiny-llama"), name.removeprefix("kvzap_"))
    save(Surrogate(shape), {}, folder)
    return [f"{name}.weights={folder}"]


def expected_skips(name: str) -> set[str]:
    cls = registry.get(name)
    if cls.is_control:
        return {check.name for check in CHECKS if not check.control}
    found = set() if "decode" in cls.phases else {"step_scores", "step_rows", "eviction"}
    if "threshold" not in cls.budgets:
        found.add("thresholds")
    if cls.score_range is None:
        found.add("score_range")
    if not cls().passes(100, 3):
        found.add("passes")
    if name.startswith("kvzap_"):  # the surrogate has another number of layers
        found.add("sliding_windows")
    return found


@pytest.mark.parametrize("name", ["kvzap_linear", "kvzap_mlp"])
def test_a_method_that_needs_weights_gets_the_shape_that_they_are_for(name: str) -> None:
    suite = prepare(name)
    info = suite.bench.info
    assert info == ModelInfo("smollm2-135m", 30, 9, 3, 64, 576)
    assert suite.bench.lm().model.vocab_size == 97
    for check in ("bind", "scores", "step_scores", "deterministic", "levels", "thresholds", "gathered"):
        assert suite.outcome(check).status == "passed", suite.outcome(check)


def test_an_alias_is_checked_as_what_it_stands_for() -> None:
    assert prepare("kvzap").bench.name == registry.resolve("kvzap", prepare("kvzap").bench.info)


def test_options_reach_the_method() -> None:
    suite = prepare("snapkv", options=["snapkv.kernel=3", "snapkv.pool=max"])
    assert suite.bench.method.options()["kernel"] == 3
    assert "kernel=3, pool=max" in suite.title
    assert suite.outcome("scores").status == suite.outcome("together").status == "passed"


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("knrm", {}, "unknown method 'knrm'; known, nearest first: knorm"),
        ("knorm", {"plugin": "missing.py"}, "plugin missing.py is not a file"),
        ("mine", {"plugin": "missing.py"}, "plugin missing.py is not a file"),
        ("knorm", {"options": ["knorm.x=1"]}, "knorm takes no options"),
        ("knorm", {"options": ["knorm"]}, "--option must be METHOD.NAME=VALUE"),
        ("knorm", {"options": ["snapkv.kernel=3"]}, "--option snapkv.kernel is not one of knorm's"),
        ("snapkv", {"options": ["snapkv.kernel=3", "snapkv.kernel=5"]}, "given twice"),
        ("snapkv", {"options": ["snapkv.kernel=4"]}, "needs an odd kernel"),
        ("knorm", {"model": "no/such-model"}, "model 'no/such-model'"),
        ("kvzap_mlp", {"options": ["kvzap_mlp.weights=nowhere/at/all"]}, "Give --model NAME of a model that it has"),
    ],
)
def test_a_users_mistake_is_one_message(name: str, more: dict[str, object], message: str) -> None:
    with pytest.raises((HarnessError, MethodError)) as caught:
        prepare(name, **more)  # type: ignore[arg-type]
    assert message in str(caught.value)
