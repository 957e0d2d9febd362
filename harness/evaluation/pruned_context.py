"""From a context to all variants on it: one prefill, their masks, and the batch that answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import BLOCK_BYTES, Context, Scored
from harness.engine.oom_batching import AtOnce
from harness.engine.prefill import prefill
from harness.evaluation.keep_masks import Masks, masks, policy_of


class PrunedContext(NamedTuple):
    """A context after its prefill. ``batch`` has a row for each variant, those that failed (``masks.failed``) too."""

    planned: Sequence[Planned]
    scored: Scored
    masks: Masks
    batch: Batch


def prune(
    lm: LanguageModel,
    planned: Sequence[Planned],
    context: Context,
    seed: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> PrunedContext:
    """Prefill a context once, score its pairs with the methods of all variants and make every variant's mask."""
    scored = prefill(lm, context, [one.method for one in planned], seed, block_bytes)
    made = masks(planned, scored, (lm.info.layers, lm.info.kv_heads, len(context.ids)), context.prefix)
    return PrunedContext(planned, scored, made, batch_of(lm, planned, scored, made.keep, seed, block_bytes))


def batch_of(
    lm: LanguageModel,
    planned: Sequence[Planned],
    scored: Scored,
    keep: Tensor,
    seed: int = 0,
    block_bytes: int = BLOCK_BYTES,
    at_once: AtOnce | None = None,
) -> Batch:
    """Variants as the rows of a batch; ``keep [V, L, H, T]``."""
    policies, positions = [policy_of(one) for one in planned], [one.variant.positions for one in planned]
    return Batch(lm, scored, keep, policies, positions, seed, block_bytes, at_once or AtOnce())
