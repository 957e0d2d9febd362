"""Which text goes into training: seeded windows of documents, some held out, the rest interleaved over the subsets.

Every choice depends on the seed and on the document alone, so the plan for N documents is the start of the plan for
more of them, and what was collected for N serves both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from harness.training.corpus import Corpus

#: tokens of a window (KVzap keeps documents of 750 to 1,250 tokens; a window of a longer one serves as well)
WINDOW = (750, 1250)
#: documents of each subset that are held out
HELD_OUT = 5


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens and counts of documents that :func:`make_plan` follows."""

    window: tuple[int, int] = WINDOW
    held_out: int = HELD_OUT
    tokens_per_doc: int = 500


@dataclass(frozen=True)
class Excerpt:
    """A window of a document: its token ids, and the places in it whose features and targets are learned."""

    ids: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Document:
    """A place in a corpus, with the shape of its excerpt: ``tokens`` in the window, ``rows`` of them learned."""

    subset: str
    row: int
    tokens: int
    rows: int


@dataclass
class Plan:
    """The documents of a training, in order; ``short`` counts those skipped for having too few tokens."""

    held_out: list[Document] = field(default_factory=list)
    train: list[Document] = field(default_factory=list)
    short: int = 0


class Excerpts:
    """Cuts documents of a corpus; the same document is always cut in the same place."""

    def __init__(self, corpus: Corpus, tokenizer: Any, seed: int, sizes: Sizes) -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.seed = seed
        self.sizes = sizes

    def cut(self, subset: str, row: int) -> Excerpt | None:
        """A random window of a random length; None of a document that is too short."""
        text = self.corpus.text(subset, row)
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        least, most = self.sizes.window
        if len(ids) < least:
            return None
        draw = random.Random(f"{self.seed}/{subset}/{row}")
        length = draw.randint(least, min(most, len(ids)))
        start = draw.randint(0, len(ids) - length)
        places = draw.sample(range(length), min(self.sizes.tokens_per_doc, length))
        return Excerpt(tuple(ids[start : start + length]), tuple(sorted(places)))

    def document(self, subset: str, row: int) -> Document | None:
        found = self.cut(subset, row)
        return None if found is None else Document(subset, row, len(found.ids), len(found.places))


def make_plan(excerpts: Excerpts, documents: int | None) -> Plan:
    """The first long enough documents of each subset are held out; ``documents`` of the others (all if None) train.

    The others are shuffled in each subset and taken in turns, one of each subset, so that any number of them is a
    balanced sample.
    """
    plan = Plan()
    queues = []
    for subset, count in excerpts.corpus.subsets.items():
        rest = _hold_out(excerpts, subset, count, plan)
        random.Random(f"{excerpts.seed}/{subset}").shuffle(rest)
        queues.append([(subset, row) for row in rest])
    for subset, row in _in_turns(queues):
        if documents is not None and len(plan.train) == documents:
            break
        found = excerpts.document(subset, row)
        if found is None:
            plan.short += 1
        else:
            plan.train.append(found)
    return plan


def _hold_out(excerpts: Excerpts, subset: str, count: int, plan: Plan) -> list[int]:
    """Add a subset's held-out documents to the plan; returns the rows after them."""
    held = 0
    for row in range(count):
        if held == excerpts.sizes.held_out:
            return list(range(row, count))
        found = excerpts.document(subset, row)
        if found is None:
            plan.short += 1
        else:
            plan.held_out.append(found)
            held += 1
    return []


def _in_turns(queues: list[list[tuple[str, int]]]) -> Iterator[tuple[str, int]]:
    for turn in zip_longest(*queues):
        yield from (item for item in turn if item is not None)
