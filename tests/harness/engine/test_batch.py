"""What the rows of a batch are: which variants are equal, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
import torch

from harness.engine.batch import Batch
from harness.engine.context import Context
from harness.engine.decode import Question, decode, decode_all
from harness.engine.eviction import Policy
from harness.engine.prefill import prefill
from methods.base import Protection
from methods.knorm import Knorm
from tests.tiny import batch, everything, tiny

LM = tiny("llama")
SCORED = prefill(LM, Context(tuple(range(9))))


def test_variants_are_equal_if_mask_policy_and_positions_are() -> None:
    keep = everything(5, 9)
    keep[2, 1, 1, 8] = keep[3, 1, 1, 8] = keep[4, 0, 1, 8] = False
    assert Batch(LM, SCORED, keep).distinct() == ([0, 2, 4], [0, 0, 1, 1, 2])
    positions = ["original", "cache", "original", "cache"]
    assert Batch(LM, SCORED, everything(4, 9), positions=positions).distinct() == ([0, 1], [0, 1, 0, 1])
    policies = [Policy(Knorm(), Protection(), removed=Decimal(removed)) for removed in ("0.5", "0.25", "0.5")]
    assert Batch(LM, SCORED, everything(3, 9), policies).distinct() == ([0, 1], [0, 1, 0])


def test_without_a_prunable_layer_all_variants_are_equal() -> None:
    lm = tiny("mistral_sliding")
    keep = torch.ones(3, 0, 3, 9, dtype=torch.bool)
    assert Batch(lm, prefill(lm, Context(tuple(range(9)))), keep).distinct() == ([0], [0, 0, 0])


@pytest.mark.parametrize("shape", [(1, 3, 1, 9), (1, 3, 3, 8), (1, 2, 3, 9)])
def test_masks_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"a batch needs masks \[V, \(3, 3, 9\)\]"):
        batch(LM, SCORED, torch.ones(shape, dtype=torch.bool))


def test_a_question_that_cannot_be_answered_is_refused() -> None:
    for variants, asked in ((0, (1,)), (1, ())):
        with pytest.raises(ValueError, match="decode needs a variant and a question"):
            decode(batch(LM, SCORED, everything(variants, 9)), Question(asked, 2))
    with pytest.raises(ValueError, match="several rollouts of a greedy answer are the same"):
        decode_all(batch(LM, SCORED, everything(1, 9)), Question((1,), 2), rollouts=2)
