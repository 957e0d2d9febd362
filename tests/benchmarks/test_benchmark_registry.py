from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.base import Benchmark, BenchmarkError
from tests.benchmarks.data_rows import ROWS, data_of


class Toy(Benchmark):
    name = "toy"


class Point:
    """An entry point of an installed package."""

    def __init__(self, name: str, loaded: Any) -> None:
        self.name, self.value, self._loaded = name, f"package:{name}", loaded

    def load(self) -> Any:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Point]]:
    points: list[Point] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "kvprune.benchmarks" else [])
    for table in ("_classes", "_load_errors", "_tried"):
        monkeypatch.setattr(registry, table, getattr(registry, table).copy())
    yield points


def test_unknown_name_lists_the_nearest_first(plugins: list[Point]) -> None:
    with pytest.raises(BenchmarkError, match=r"unknown benchmark 'ruller'; known, nearest first: ruler, .*needles"):
        registry.get("ruller")
    with pytest.raises(BenchmarkError, match="nearest first: needles, "):
        registry.get("neddle")


def test_taken_names(plugins: list[Point]) -> None:
    registry.register(Toy)
    registry.register(Toy)  # the same class again, as after a reload
    for own, message in (
        ({"name": "toy"}, r"'toy' is taken by .*Toy; choose another.*first: toy, "),
        ({"name": "ruler"}, "'ruler' is taken by"),
        ({}, "Other has no name"),
    ):
        with pytest.raises(BenchmarkError, match=message):
            registry.register(type("Other", (Benchmark,), own))
    assert type(registry.get("toy")) is Toy


def test_broken_plugin_shows_its_error_when_requested_and_hinders_no_other(plugins: list[Point]) -> None:
    plugins += [Point("bad", ImportError("no frob")), Point("toy", Toy), Point("wrong", int), Point("other", Toy)]
    assert registry.names() == sorted([*registry.BUILT_IN, "toy"])
    for name, message in {
        "bad": "'bad' comes from a plugin that did not load .ImportError: no frob",
        "wrong": "package:wrong is not a subclass",
        "other": "package:other is named 'toy', its entry point 'other'",
    }.items():
        with pytest.raises(BenchmarkError, match=message):
            registry.get(name)
    assert type(registry.get("toy")) is Toy


def test_plugin_cannot_replace_a_built_in(plugins: list[Point]) -> None:
    plugins.append(Point("needles", type("Needles", (Benchmark,), {"name": "needles"})))
    assert registry.names() == sorted(registry.BUILT_IN)
    assert type(registry.get("needles")).__module__ == "benchmarks.needles"


def test_benchmarks_import_no_model_code_and_are_imported_when_requested(tmp_path: Path) -> None:
    rows = data_of("aime25", tmp_path, json.dumps(ROWS["aime25"]).encode())
    code = """
import sys
from pathlib import Path
from benchmarks import registry
registry.names()
assert "benchmarks.ruler.benchmark" not in sys.modules and "benchmarks.needles" not in sys.modules
from benchmarks.base import Request
for name in registry.BUILT_IN:
    registry.get(name)
for name, data in (("ruler", None), ("needles", None), ("aime25", sys.argv[1])):
    registry.get(name).check(Request(data=data and Path(data)))
heavy = "torch transformers numpy datasets nltk harness methods lm_eval wonderwords math_verify".split()
print(sorted(set(heavy) & {name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code, str(rows)], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
