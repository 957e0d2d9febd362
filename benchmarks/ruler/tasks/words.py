"""Words and other random strings of RULER's tasks."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from benchmarks.base import BenchmarkError

REMEDY = "install it: pip install wonderwords"


class Lists(NamedTuple):
    nouns: list[str]
    adjectives: list[str]
    #: nouns, adjectives and verbs
    all: list[str]


def wonderwords_version() -> str:
    """Its version, without importing it; the word lists differ between versions."""
    try:
        return version("wonderwords")
    except PackageNotFoundError:
        raise BenchmarkError(f"ruler takes its words from wonderwords, which is not installed; {REMEDY}") from None


@cache
def lists() -> Lists:
    """wonderwords' lists, each sorted and without repeats."""
    try:
        import wonderwords
    except ImportError as error:
        raise BenchmarkError(
            f"ruler takes its words from wonderwords, which does not load ({error}); {REMEDY}"
        ) from error
    # its public calls draw from the global random state one word at a time
    categories = wonderwords.RandomWord()._categories
    nouns, adjectives, verbs = (sorted(set(categories[name])) for name in ("noun", "adjective", "verb"))
    return Lists(nouns, adjectives, sorted({*nouns, *adjectives, *verbs}))


def draw(kind: str, rng: random.Random) -> str:
    """A random string: ``words`` an adjective and a noun with a hyphen, ``numbers`` 7 digits, ``uuids`` a UUID (4)."""
    if kind == "words":
        return f"{rng.choice(lists().adjectives)}-{rng.choice(lists().nouns)}"
    if kind == "numbers":
        return str(rng.randint(10**6, 10**7 - 1))
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


class Distinct:
    """Draws without repeats that are not in ``taken``; item n is the same however many are drawn."""

    def __init__(self, kind: str, rng: random.Random, taken: Iterable[str] = ()) -> None:
        self._kind, self._rng = kind, rng
        self._items: list[str] = []
        self._seen = set(taken)

    def first(self, count: int) -> list[str]:
        while len(self._items) < count:
            item = draw(self._kind, self._rng)
            if item not in self._seen:
                self._seen.add(item)
                self._items.append(item)
        return self._items[:count]
