"""A tiny model on disk, the command line in this process, and registries that forget what a test registered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmarks.registry
import methods.registry
from harness import cli as command_line
from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.engine.adapter import LanguageModel
from harness.evaluation.evaluator import Evaluator
from harness.models import loading
from harness.models.prompts import Prompts
from tests.harness.driving import Ran, Runs
from tests.harness.toys import Broken, Carded, Toy, save_model, toy_tokenizer
from tests.tiny import tiny


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "Tiny-Llama")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*args: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["kvprune", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        return Ran(int(stop.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture
def runs(cli: Callable[..., Ran], model_folder: Path, tmp_path: Path) -> Runs:
    return Runs(cli, model_folder, tmp_path / "out")


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of how busy this machine is."""
    monkeypatch.setattr("harness.cli.evaluate.load_average", lambda: 0.0)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered from here on is forgotten after the test."""
    methods.registry.load_all()
    for name in benchmarks.registry.names():  # a built-in module registers once, on its first import
        benchmarks.registry.get(name)
    monkeypatch.setattr(methods.registry, "_methods", dict(methods.registry._methods))
    monkeypatch.setattr(benchmarks.registry, "_classes", dict(benchmarks.registry._classes))


@pytest.fixture
def toys(forgetful: None) -> Iterator[None]:
    """The benchmark ``toy`` and the methods ``carded`` and ``broken``."""
    benchmarks.registry.register(Toy)
    methods.registry.register(Carded)
    methods.registry.register(Broken)
    yield


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, loading a model fails the test."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the model was loaded")

    return lambda: monkeypatch.setattr(loading, "load_model", refuse)


@pytest.fixture(scope="session")
def toy_prompts() -> Prompts:
    return Prompts(toy_tokenizer())


@pytest.fixture(scope="session")
def toy_lm(toy_prompts: Prompts) -> LanguageModel:
    return tiny("llama", vocab_size=len(toy_prompts.tokenizer))


@pytest.fixture
def evaluator(toy_lm: LanguageModel, toy_prompts: Prompts, toys: None) -> Callable[..., Evaluator]:
    """Makes the evaluator of a grid on a tiny model in float64."""

    def make(*methods: str, done: frozenset[tuple[str, str, int]] = frozenset(), **more: Any) -> Evaluator:
        grid = RunConfig(method=methods, **more)
        planned = plan(grid, toy_lm.info).planned
        return Evaluator(toy_lm, toy_prompts, frozenset(), planned, query_aware=grid.query_aware, done=done)

    return make
