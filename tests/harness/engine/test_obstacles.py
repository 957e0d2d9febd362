"""What the engines refuse to run, because the numbers would be wrong without an error."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

from harness.engine.adapter import EngineError, LanguageModel
from harness.engine.context import PositionsExceeded, check_positions, out_of_memory
from tests.tiny import SHAPE

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 3,
    "long_factor": [4.0] * 3,
    "original_max_position_embeddings": 64,
}


def test_dynamic_rope_scaling_is_refused() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    with pytest.raises(EngineError, match="dynamic RoPE"):
        LanguageModel(LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=rope)), "tiny")


def test_longrope_may_not_leave_the_angles_of_its_cached_keys() -> None:
    config = Phi3Config(**{**SHAPE, "head_dim": 6}, rope_parameters=LONGROPE, original_max_position_embeddings=64)
    lm = LanguageModel(Phi3ForCausalLM(config), "tiny")
    assert lm.obstacle(40, 64) is None  # short angles throughout
    assert lm.obstacle(65, 100) is None  # long ones throughout
    with pytest.raises(PositionsExceeded, match="crosses position 64"):
        check_positions(lm, 40, 65, "prompt and answer")


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error: Exception, memory: bool) -> None:
    assert out_of_memory(error) is memory
