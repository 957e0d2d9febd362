"""Delayed eviction: each pair is judged once, when it leaves the recent window (KVzap, arXiv 2601.07891)."""

from __future__ import annotations

import torch
from torch import Tensor


class DelayedEviction:
    """The threshold budget over a growing cache of one layer.

    Scores come in forward by forward; a pair is judged when ``window`` newer pairs are cached, and evicted where its
    score is below ``threshold`` (an equal score stays). A verdict is final. Pairs of the first ``sure`` positions
    are never evicted. The state belongs to the cache: :meth:`snapshot` and :meth:`restore` go with it.
    """

    def __init__(self, threshold: float, window: int, sure: int = 0) -> None:
        self.threshold = threshold
        self.window = window
        self.sure = sure
        self._waiting: Tensor | None = None  # scores of the pairs still in the window, [H, m]
        self._keep: Tensor | None = None  # bool [H, C]

    def append(self, scores: Tensor) -> Tensor:
        """Add the scores ``[H, n]`` of the newest n pairs; returns the keep mask ``[H, C]`` for the next forward."""
        kept = torch.ones_like(scores, dtype=torch.bool)
        self._waiting = scores if self._waiting is None else torch.cat([self._waiting, scores], dim=-1)
        self._keep = kept if self._keep is None else torch.cat([self._keep, kept], dim=-1)
        leaving = self._waiting.shape[-1] - self.window
        if leaving > 0:
            start = self._keep.shape[-1] - self._waiting.shape[-1]
            judged, self._waiting = self._waiting[:, :leaving], self._waiting[:, leaving:]
            sure = torch.arange(start, start + leaving, device=scores.device) < self.sure
            self._keep = self._keep.clone()
            self._keep[:, start : start + leaving] = (judged >= self.threshold) | sure
        return self._keep

    def snapshot(self) -> tuple[Tensor | None, Tensor | None]:
        """The state, to be given back to :meth:`restore`; tensors are never changed in place afterwards."""
        return self._waiting, self._keep

    def restore(self, state: tuple[Tensor | None, Tensor | None]) -> None:
        self._waiting, self._keep = state
