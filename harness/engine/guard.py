"""Methods are code of strangers: what they return is checked, what they raise is theirs alone, and what they are shown
they may not write to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from harness.engine.context import Failure, out_of_memory
from methods.base import Lent, Method, MethodError


class Overwritten(MethodError):
    """A method changed what it was shown, in place: other methods, and the cache itself, may have seen the change."""


@contextmanager
def untouched(method: Method, shown: Lent) -> Iterator[None]:
    """A method's look at what a layer shows; :class:`Overwritten` if it wrote to any of it."""
    try:
        yield
    finally:
        if shown.written():
            raise Overwritten(
                f"method {method.name!r} changed in place what a layer showed it; work on a copy, tensor.clone()"
            )


def checked(method: Method, scores: Tensor, shape: Sequence[int]) -> Tensor:
    """A method's scores, if they have the type and shape that they are to have."""
    if scores.dtype != torch.float32 or tuple(scores.shape) != tuple(shape):
        raise MethodError(
            f"method {method.name!r} returned scores {scores.dtype} {list(scores.shape)}; "
            f"expected float32 {list(shape)}, one score for each KV head and cached pair"
        )
    return scores.contiguous()


def failure_of(error: BaseException) -> Failure:
    """What a method's lines say of an error that it raised."""
    return Failure("oom" if out_of_memory(error) else "error", f"{type(error).__name__}: {error}")
