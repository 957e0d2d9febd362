"""What a surrogate learns: from which features, and towards which scores (KVzap, arXiv 2601.07891, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.base import Observation, Step
from methods.kvzip import largest_weights
from methods.kvzip_plus import weighed

#: what a surrogate may read: the attention module's input, or the paper's ablation (which it found worse)
FEATURES = ("hidden", "keys-values")


def features(seen: Observation, kind: str) -> Tensor:
    """What a surrogate reads of the tokens of a forward, float32 ``[n, F]``.

    hidden        F = D: the input of the attention module, after the layer's norm
    keys-values   F = 2 H d: all KV heads' keys, then all their values, as cached (keys after RoPE, so they carry
                  their position)
    """
    if kind == "hidden":
        return seen.hidden.float()
    new = slice(seen.cached - seen.new, None)
    parts = [part[:, new].transpose(0, 1).flatten(1) for part in (seen.keys, seen.values)]
    return torch.cat(parts, dim=1).float()


def step_features(step: Step, kind: str) -> Tensor:
    """The same of the new tokens of a decode forward of V variants, float32 ``[V * n, F]``."""
    if kind == "hidden":
        return step.hidden.float().flatten(0, 1)
    parts = [part.transpose(1, 2).flatten(2) for part in (step.keys, step.values)]
    return torch.cat(parts, dim=2).float().flatten(0, 1)


def feature_size(kind: str, hidden_size: int, kv_heads: int, head_size: int) -> int:
    """F, the width of :func:`features`."""
    return hidden_size if kind == "hidden" else 2 * kv_heads * head_size


def repeat_targets(seen: Observation, context: int, copy: slice) -> Tensor:
    """ln KVzip+ of the first ``context`` columns, float32 ``[H, context]``, from one forward of a whole repetition.

    The forward holds ``context`` tokens (template prefix and text), the instruction, and at ``copy`` the text again.
    The target of column t is ln max(1e-30, max over the group's query heads q and tokens j of the copy of
    ``a[q, j, t] ||W_O^q v_t|| / ||x_j||``), with one causal softmax over everything up to j. This is how the authors
    collect targets; their scorer runs in chunks and also reads the instruction's queries.
    """
    keys = seen.keys[:, : copy.stop]
    found = largest_weights(seen, copy, keys, slice(0, context))
    return weighed(seen, found.per_norm, 0, context)
