"""A tiny model on disk, the command line in this process, and registries that forget what a test registered."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import benchmarks.registry
import methods.registry
from harness import cli as command_line
from tests.harness.toys import Broken, Carded, Toy, save_model


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Runs:
    """``python -m harness run`` on the tiny model, with results in a folder of the test's own."""

    def __init__(self, cli: Callable[..., Ran], model: Path, out: Path) -> None:
        self.cli, self.model, self.out = cli, model, out

    def __call__(self, *args: object) -> Ran:
        return self.cli("run", "--model", self.model, "--out", self.out, *args)

    @property
    def folders(self) -> list[Path]:
        return sorted(self.out.iterdir()) if self.out.is_dir() else []

    @property
    def folder(self) -> Path:
        (folder,) = self.folders
        return folder

    def rows(self, name: str = "samples.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text("utf-8").splitlines()]

    def json(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / name).read_text("utf-8")))


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


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered from here on is forgotten after the test."""
    methods.registry.load_all()
    benchmarks.registry.names()
    monkeypatch.setattr(methods.registry, "_methods", dict(methods.registry._methods))
    monkeypatch.setattr(benchmarks.registry, "_classes", dict(benchmarks.registry._classes))


@pytest.fixture
def toys(forgetful: None) -> Iterator[None]:
    """The benchmark ``toy`` and the methods ``carded`` and ``broken``."""
    benchmarks.registry.register(Toy)
    methods.registry.register(Carded)
    methods.registry.register(Broken)
    yield
