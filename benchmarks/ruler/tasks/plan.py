"""What the task families share: a seeded stream, a sample's plan that can be built at any size, and filling it up."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.base import Text
from benchmarks.lmeval_prompts import Templates
from benchmarks.prompt_filling import largest_fit

#: the share of the room that one long unit may leave free
MOST_FREE = 0.25


class Draft(NamedTuple):
    """The texts of one sample. The question ends with the space that separates it from the answer prefix."""

    context: str
    question: str
    answer_prefix: str
    references: tuple[str, ...]

    @property
    def prompt(self) -> str:
        return self.context + self.question + self.answer_prefix


@dataclass(frozen=True)
class Stream:
    """Where the samples of one (subset, length, seed) come from.

    room    tokens that a prompt may take: the length less the answer limit
    source  the published texts that the subset needs (:mod:`benchmarks.ruler.source_texts`); None for most
    """

    subset: str
    length: int
    seed: int
    room: int
    text: Text
    templates: Templates
    source: Any = None

    def rng(self, *parts: object) -> random.Random:
        """A separate generator for each purpose, so that no draw depends on the number of other draws."""
        return random.Random("/".join(map(str, ("ruler", self.subset, self.length, self.seed, *parts))))


@dataclass(frozen=True)
class Plan:
    """One sample at any size.

    build   the sample with n units, the same at every call
    unit    what n counts
    least   fewest units of a sample
    most    the number of units available, all used if there is room (as in RULER); None = unlimited
    without the plan that lacks unit n, counted from 0, for units of uneven length; None where all are alike
    """

    build: Callable[[int], Draft]
    unit: str
    least: int
    most: int | None = None
    without: Callable[[int], Plan] | None = None


class Filler:
    """Fills plans of one stream; remembers the last size, since the next one is similar."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._guess = 0

    def draw(self, plan: Plan) -> Draft:
        """The sample whose prompt fits the room and with one more unit would not.

        A unit so long that it would leave much of the room free (:data:`MOST_FREE`) is passed over.

        The prompt is encoded as one text, without a chat template. Raises :class:`BenchmarkError` if the smallest
        sample does not fit. If the units run out below the length, the sample has them all, with a warning.
        """
        stream = self._stream
        size = self._largest(plan, self._guess or self._first_guess(plan))
        while plan.without and size != plan.most and self._cost(plan, size) < (1 - MOST_FREE) * stream.room:
            plan = plan.without(size)
            size = self._largest(plan, size + 1)
        if size == plan.most:
            text = f"all {plan.most} {plan.unit}s together do not fill it; give more texts or a shorter --length"
            warnings.warn(f"{self._what}: {text}", stacklevel=2)
        self._guess = size
        return plan.build(size)

    @property
    def _what(self) -> str:
        return f"ruler {self._stream.subset} at {self._stream.length} tokens"

    def _largest(self, plan: Plan, guess: int) -> int:
        room = self._stream.room

        def cost(n: int) -> int:
            if plan.most is not None and n > plan.most:
                return room + 1 + n - plan.most
            return self._cost(plan, n)

        return largest_fit(cost, room, guess, plan.least, self._what)

    def _cost(self, plan: Plan, n: int) -> int:
        return len(self._stream.text.encode(plan.build(n).prompt))

    def _first_guess(self, plan: Plan) -> int:
        few, more = (self._cost(plan, plan.least + extra) for extra in (0, 20))
        return plan.least + (self._stream.room - few) * 20 // max(1, more - few)


def lay(template: str, **fields: str) -> tuple[str, str]:
    """A filled template as (context, question), split after the line end that follows ``{context}``."""
    head, tail = template.split("{context}")
    border = len(tail) - len(tail.lstrip("\n"))
    context = fields.pop("context")
    return head.format(**fields) + context + tail[:border], tail[border:].format(**fields)


def join(context: str, question: str, prefix: str, references: tuple[str, ...]) -> Draft:
    """The draft with the space before the answer prefix moved to the question's end, as in NVIDIA's rows."""
    bare = prefix.lstrip(" ")
    return Draft(context, question + prefix[: len(prefix) - len(bare)], bare, references)
