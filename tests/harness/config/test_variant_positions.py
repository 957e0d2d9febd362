"""Positions as a part of a variant: who has which, and which models and methods are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from transformers import LlamaConfig

from harness.config.grid import plan
from harness.config.run_config import PHASES, RunConfig
from harness.engine.adapter import describe
from harness.errors import HarnessError
from methods import registry
from methods.base import Method, MethodError
from methods.streaming_llm import StreamingLLM
from tests.harness.driving import INFO, Ran, decimals, planned
from tests.harness.toys import toy_tokenizer
from tests.tiny import MODELS, SHAPE

BOTH = ("streaming_llm", "streaming_llm_rerotated")
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 8.0}


@pytest.mark.parametrize("phase", PHASES)
def test_the_two_streaming_llm_differ_in_positions_alone(phase: str) -> None:
    original, moved = planned(*BOTH, removed=decimals("0.5"), phase=phase).planned[1:]
    assert (original.variant.positions, moved.variant.positions) == ("original", "cache")
    differ = {name for name, value in original.variant.fields().items() if value != moved.variant.fields()[name]}
    assert differ == {"variant", "method", "positions"}
    assert moved.variant.fields()["positions"] == "cache"


def test_no_other_method_counts_positions_in_the_cache() -> None:
    assert [name for name in registry.names() if registry.get(name).positions != "original"] == [BOTH[1]]
    assert registry.names().index(BOTH[1]) == registry.names().index(BOTH[0]) + 1


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_models_whose_angles_change_with_the_length_are_refused(scaling: str) -> None:
    info = replace(INFO, rope_scaling=scaling)
    with pytest.raises(HarnessError, match=f"streaming_llm_rerotated moves keys .* has {scaling} RoPE scaling"):
        plan(RunConfig(method=(BOTH[1],)), info)
    found = plan(RunConfig(method=BOTH), info)
    assert [p.method.name for p in found.planned] == ["full"] + ["streaming_llm"] * 3
    assert list(found.skipped) == [BOTH[1]]


@pytest.mark.parametrize(
    ("family", "changes", "scaling"),
    [
        ("llama", {}, "default"),
        ("llama", {"rope_parameters": DYNAMIC}, "dynamic"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("llama", {"rope_parameters": LINEAR}, "linear"),
        ("phi3", {"rope_parameters": LONGROPE}, "longrope"),
        ("phi3", {"rope_scaling": {**LONGROPE, "rope_type": "su"}}, "longrope"),
        ("gemma3", {}, "default"),
        ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "linear"),
    ],
)
def test_a_configuration_says_how_the_prunable_layers_scale_rope(
    family: str, changes: dict[str, Any], scaling: str
) -> None:
    config_class, own = MODELS[family]
    changes = copy.deepcopy(changes)  # configurations write into what they are given
    assert describe(config_class(**{**SHAPE, **own, **changes}), "any").rope_scaling == scaling


def test_a_model_is_refused_by_its_configuration_before_weights_are_looked_for(
    cli: Callable[..., Ran], tmp_path: Path, toys: None
) -> None:
    LlamaConfig(**SHAPE, rope_parameters=DYNAMIC).save_pretrained(tmp_path / "model")
    toy_tokenizer().save_pretrained(tmp_path / "model")
    asked = ("--benchmark", "toy", "--model", tmp_path / "model", "--out", tmp_path / "out")
    done = cli("run", *asked, "--method", BOTH[1])
    assert done.code != 0 and "dynamic RoPE scaling" in done.err and "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Watching(StreamingLLM):
    name: ClassVar[str] = "watching"
    needs: ClassVar[frozenset[str]] = frozenset({"weights"})
    positions: ClassVar[str] = "cache"


def test_a_method_that_reads_weights_cannot_move_pairs_while_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.load_all()
    monkeypatch.setattr(registry, "_methods", {**registry._methods, "watching": Watching})
    assert [p.variant.positions for p in planned("watching").planned] == ["original"] + ["cache"] * 3
    with pytest.raises(HarnessError, match="reads attention weights, whose pairs move in phase both; use prefill"):
        planned("watching", phase="both")


def test_positions_that_there_are_not_are_refused() -> None:
    @dataclass(frozen=True)
    class Odd(Method):
        name: ClassVar[str] = "odd"
        positions: ClassVar[str] = "cached"

    with pytest.raises(MethodError, match=r"positions of .*Odd must be original or cache, got 'cached'"):
        registry.register(Odd)
    assert "odd" not in registry.names()


@pytest.mark.parametrize("phase", PHASES)
def test_lines_count_what_those_of_streaming_llm_count(runs: Any, toys: None, phase: str) -> None:
    done = runs(
        "--benchmark", "toy", "--limit", "2", "--method", ",".join(BOTH), "--removed", "0.25,0.75", "--phase", phase
    )
    assert done.code == 0, done.err
    by_method: dict[str, list[dict[str, Any]]] = {name: [] for name in BOTH}
    for line in runs.rows():
        if line["method"] in by_method:
            by_method[line["method"]].append(line)
    original, moved = by_method.values()
    assert len(original) == len(moved) > 0
    assert {line["positions"] for line in moved} == {"cache"} and {line["positions"] for line in original} == {
        "original"
    }
    assert [line["prediction"] for line in original] != [line["prediction"] for line in moved]
    for one, other in zip(original, moved, strict=True):
        for name in ("level", "sample_id", "cached_pairs", "kept_pairs", "removed_context", "status", "bound_by"):
            assert one[name] == other[name], name
        if one["generated_tokens"] == other["generated_tokens"]:
            assert one["removed_time_mean"] == other["removed_time_mean"]
    assert all(line["variant"].startswith(f"{BOTH[1]} head") for line in moved)
