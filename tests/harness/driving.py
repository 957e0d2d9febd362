"""How tests drive the harness: whole commands, the evaluator alone, the plan of a grid alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Plan
from harness.evaluation.evaluator import Evaluator, Item
from harness.results.schema import Line
from methods.base import ModelInfo
from tests.harness.toys import Toy, toy_sample

ROOT = Path(__file__).parents[2]
#: the run in results/ that is not ignored, which the README's table is made from
COMMITTED = ROOT / "results" / re.findall(r"^!/results/(.+)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)[0]
QUICK = ("--benchmark", "toy", "--method", "knorm,carded", "--removed", "0.5", "--limit", "2")
HALF = (Decimal("0.5"),)
INFO = ModelInfo("no-surrogate", layers=3, query_heads=9, kv_heads=3, head_size=8, hidden_size=54)


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Runs:
    """``kvprune run`` on the tiny model, with results in a folder of the test's own."""

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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def shorten(runs: Runs, lines: int, name: str = "samples.jsonl") -> None:
    """Make a run look as if it had been stopped after some lines."""
    path = runs.folder / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))
    (runs.folder / "summary.json").unlink(missing_ok=True)


def some(count: int = 2, length: int = 40, **changes: Any) -> list[Item]:
    """Samples of the toy benchmark, two on each context."""
    return [Item(Toy(), replace(toy_sample("red", length, index), **changes)) for index in range(count)]


def evaluate(made: Evaluator, items: Sequence[Item], histogram: Any = None) -> list[Line]:
    return list(made.run(items, histogram))


def planned(*methods: str, **more: Any) -> Plan:
    return plan(RunConfig(method=methods, **more), INFO)


def labels(*methods: str, **more: Any) -> list[str]:
    """Labels of all variants but the control, which is always there, and first."""
    found = [p.variant.label for p in planned(*methods, **more).planned]
    assert found[0] == "full"
    assert "full" not in found[1:]
    return found[1:]


def decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts))
