"""The tables of methods, benchmarks and models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.models.known_models import EMBEDDED, SHAPES, Shape
from harness.reporting import console
from methods import registry
from tests.harness.driving import Ran

pytestmark = pytest.mark.usefixtures("toys")


def test_methods_lists_every_method_and_alias(cli: Callable[..., Ran]) -> None:
    done = cli("methods")
    assert done.code == 0
    named = {line.split("│")[1].strip() for line in done.out.splitlines() if line.startswith("│")}
    assert {*registry.names(), *registry.aliases()} - {"carded", "broken"} == named


def test_one_method_is_shown_with_all_that_is_known_of_it(cli: Callable[..., Ran]) -> None:
    text = " ".join(cli("methods", "kvzip").out.split())
    for part in ("arXiv 2505.23416", "template prefix", "chunk=2048", "(default: global)", "prefill"):
        assert part in text
    wrong = cli("methods", "kvzp")
    assert (wrong.code, "unknown method 'kvzp'; known, nearest first: kvzip" in wrong.err) == (2, True)


@pytest.mark.parametrize("command", ["methods", "benchmarks", "models"])
def test_no_name_is_cut_however_narrow_the_terminal(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(console, "PIPE_WIDTH", 20)
    done = cli(command)
    assert done.code == 0 and "…" not in done.out
    for name in {"methods": registry.names()[:-2], "benchmarks": ["multi-question"], "models": list(EMBEDDED)}[command]:
        assert name in done.out


def test_methods_lists_a_plugins_method(cli: Callable[..., Ran], tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from dataclasses import dataclass\nfrom methods.registry import register\nfrom methods.knorm import Knorm\n"
        "@register\n@dataclass(frozen=True)\nclass Mine(Knorm):\n    name = 'brackets'\n    summary = 'a [b] c'\n",
        encoding="utf-8",
    )
    done = cli("methods", "--plugin", plugin)
    assert (done.code, "brackets" in done.out, "a [b] c" in done.out) == (0, True, True)
    missing = cli("methods", "--plugin", "nowhere.py")
    assert (missing.code, missing.err.startswith("error: plugin nowhere.py is not a file")) == (2, True)


def test_benchmarks_lists_subsets_and_what_needs_data(cli: Callable[..., Ran]) -> None:
    done = cli("benchmarks")
    assert done.code == 0
    for text in ("needles", "keys_8", "ruler", "niah_single_1", "qa_1", "toy"):
        assert text in done.out


def test_models_lists_cache_sizes_and_overheads(cli: Callable[..., Ran]) -> None:
    done = cli("models")
    assert done.code == 0
    rows = {line.split("│")[1].strip(): line for line in done.out.splitlines() if line.startswith("│")}
    assert "335.5 GB" in rows["huggyllama/llama-65b"]
    assert "2,621,440 (16 bit)" in rows["huggyllama/llama-65b"]
    for name, mlp in (
        ("Qwen/Qwen3-8B", "1.09%"),
        ("Qwen/Qwen3-32B", "0.67%"),
        ("meta-llama/Llama-3.1-8B-Instruct", "0.96%"),
    ):
        assert mlp in rows[name]
    assert "0.02%" in rows["Qwen/Qwen3-8B"]
    assert "0.01%" in rows["Qwen/Qwen3-32B"]


def test_the_cache_of_a_model_is_counted_in_bytes() -> None:
    shapes = {shape.name: shape for shape in SHAPES}
    assert shapes["Qwen/Qwen2.5-14B"].kv_bytes * 120_000 == 23_592_960_000
    assert shapes["huggyllama/llama-65b"].kv_bytes * 128_000 == 335_544_320_000
    assert Shape("x", 2, 8, 8, 4, 2, 16, bits=32).kv_bytes == 2 * 2 * 2 * 16 * 4
