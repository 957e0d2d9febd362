"""What is known of one context: its tokens, its full cache, each method's scores; and what stops a forward on it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from methods.base import Method

P = ParamSpec("P")
T = TypeVar("T")
#: default size of the largest temporary, in bytes
BLOCK_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Context:
    """A tokenised context.

    ids       token ids, template prefix first
    prefix    P, how many of them are the template's
    suffix    template ids that close the user's turn and open the assistant's (extra passes need them)
    encode    text -> ids without special tokens (for the texts of extra passes)
    stop_ids  tokens that end an answer (for those that extra passes ask for)
    cut       tokens that were left out of its middle
    cut_at    the place at which they stood
    """

    ids: tuple[int, ...]
    prefix: int = 0
    suffix: tuple[int, ...] = ()
    encode: Callable[[str], list[int]] = lambda text: []
    stop_ids: frozenset[int] = frozenset()
    cut: int = 0
    cut_at: int = 0

    def seed(self, run_seed: int) -> int:
        """A seed of the run's seed and the context's tokens; the same on every machine."""
        digest = hashlib.sha256(repr((run_seed, self.ids)).encode()).digest()
        return int.from_bytes(digest[:6], "big")


class Shown(NamedTuple):
    """What a prunable layer showed of the context: ``hidden [T, D]`` (``[0, D]`` where nobody reads it) and
    ``queries [Hq, T, d]``."""

    hidden: Tensor
    queries: Tensor


@dataclass
class Prefix:
    """The full cache of a context: for each layer (all layers) keys and values ``[H, T, d]``, stored once.

    last_hidden   ``[T, D]``, the last hidden states of the prefill
    shown         for each prunable layer what it showed, where questions come into view later; else empty
    """

    context: Context
    keys: list[Tensor]
    values: list[Tensor]
    last_hidden: Tensor
    shown: list[Shown] = field(default_factory=list)

    @property
    def cached(self) -> int:
        """T"""
        return len(self.context.ids)


class Failure(NamedTuple):
    status: str
    reason: str


@dataclass
class Scored:
    """A prefix and the scores of each method on it, float32 ``[L, H, T]`` (none for the control).

    ``failed`` has the methods that could not score this context, with a status (``error``, ``oom``, ``truncated``) and
    the reason; they have no scores, the others are not touched by it.
    """

    prefix: Prefix
    scores: dict[Method, Tensor] = field(default_factory=dict)
    failed: dict[Method, Failure] = field(default_factory=dict)


class PositionsExceeded(ValueError):
    """A forward would go past the model's position limit."""

    #: printed without a traceback (:func:`harness.errors.is_users_mistake`)
    users_mistake = True


def check_positions(lm: LanguageModel, cached: int, needed: int, what: str) -> None:
    """Raise :class:`PositionsExceeded` where a cache of ``cached`` tokens cannot grow to ``needed`` positions."""
    obstacle = lm.obstacle(cached, needed)
    if obstacle:
        raise PositionsExceeded(f"{what} {obstacle} (model {lm.name!r})")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch's CPU allocator raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("allocate memory" in text or "out of memory" in text)


def unless_out_of_memory(make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Failure:
    """What ``make`` returns, or a failure with the status ``oom`` where memory runs out meanwhile."""
    try:
        return make(*args, **kwargs)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return Failure("oom", str(error) or "out of memory")
