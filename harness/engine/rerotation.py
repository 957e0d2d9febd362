"""Positions counted inside the cache, for variants whose ``positions`` is ``cache``.

There a kept pair of a head stands at the number of kept pairs before it. RoPE sees differences of positions alone, so
the same attention comes out where all of it is shifted by the number of removed pairs: the newest token keeps its
position, and so does every pair with nothing removed after it. Only the others move, forward by what was removed after
them. StreamingLLM moves its sinks and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from methods.rope import rotate, unrotate

ORIGINAL, IN_CACHE = "original", "cache"


class Moving(NamedTuple):
    """The pairs of some heads that move, at most s a head.

    mask    bool ``[..., C]``: the pairs themselves
    places  ``[..., s]``: their places in the cache, in order
    by      ``[..., s]``: how many positions forward each moves
    real    bool ``[..., s]``: false where a head has fewer than s; what ``places`` says there means nothing
    """

    mask: Tensor
    places: Tensor
    by: Tensor
    real: Tensor


def moving(keep: Tensor) -> Moving:
    """Which of the pairs that ``keep [..., C]`` keeps have removed ones after them, and how many."""
    after = (~keep).flip(-1).cumsum(dim=-1).flip(-1)
    mask = keep & (after > 0)
    most = int(mask.sum(dim=-1).max()) if mask.numel() else 0
    places = (~mask).byte().argsort(dim=-1, stable=True)[..., :most]
    return Moving(mask, places, after.gather(-1, places), mask.gather(-1, places))


def moved_keys(lm: LanguageModel, layer: int, keys: Tensor, places: Tensor, by: Tensor) -> Tensor:
    """Keys ``[..., s, d]`` of a layer that stand at ``places [..., s]``, as the model makes them ``by`` positions on.

    Made from the key at its original position each time, in float32 at least: no error adds up over a long answer.
    """
    exact = keys.to(torch.promote_types(keys.dtype, torch.float32))

    def turn(positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = (part.to(exact.dtype) for part in lm.rotation(layer, positions.flatten()))
        return cos.view(*positions.shape, cos.shape[-1]), sin.view(*positions.shape, sin.shape[-1])

    return rotate(unrotate(exact, *turn(places)), *turn(places + by)).to(keys.dtype)


def pairs_at(places: Tensor, rows: Sequence[int], prefix: Tensor, suffix: Tensor) -> Tensor:
    """Keys or values ``[v, H, s, d]`` that stand at ``places [v, H, s]`` of the caches of some rows of a batch: first
    the ``prefix [H, T, d]``, the same for all rows, then each row's own ``suffix [V, H, S, d]``."""
    device, cached = places.device, prefix.shape[1]
    row = torch.tensor(rows, device=device).view(-1, 1, 1).expand_as(places)
    head = torch.arange(places.shape[1], device=device).view(-1, 1).expand_as(places)
    old = places < cached
    found = suffix.new_empty(*places.shape, suffix.shape[-1])
    found[old] = prefix[head[old], places[old]]
    found[~old] = suffix[row[~old], head[~old], places[~old] - cached]
    return found
