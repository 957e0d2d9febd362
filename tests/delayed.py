"""Delayed eviction (KVzap, arXiv 2601.07891, section 3.3) in plain Python, for budgets and evictor to meet."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def delayed(scores: Tensor, tau: float, window: int, sizes: Iterable[int], sure: int = 0) -> Tensor:
    """What is left of pairs with scores ``[H, C]`` that arrive in forwards of ``sizes`` tokens; bool ``[H, C]``.

    Each pair is judged once, at the end of the forward with which it leaves the window; the first ``sure`` never.
    """
    keep = [[True] * scores.shape[1] for _ in scores]
    waiting: list[int] = []
    arrived = 0
    for size in sizes:
        waiting += range(arrived, arrived + size)
        arrived += size
        while len(waiting) > window:
            place = waiting.pop(0)
            for head, row in enumerate(scores.tolist()):
                keep[head][place] = row[place] >= tau or place < sure
    return torch.tensor(keep)
