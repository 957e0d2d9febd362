"""RULER's variable tracking: a chain of assignments in repeated lines; the question is for all with its value."""

from __future__ import annotations

import random
import string
from itertools import pairwise

from benchmarks.prompt_filling import largest_fit
from benchmarks.ruler.tasks.plan import Draft, Plan, Stream, join, lay

HOPS = 4
#: the worked example's context and question take this many tokens with the room for an answer, whatever the length
EXAMPLE_TOKENS = 500
NAME_LETTERS = 5
EXAMPLE_NAME_LETTERS = 3


class Chain:
    """HOPS + 1 distinct variables that get one value in turn."""

    def __init__(self, stream: Stream, letters: int, rng: random.Random) -> None:
        names: list[str] = []
        while len(names) < HOPS + 1:
            name = "".join(rng.choices(string.ascii_uppercase, k=letters))
            if name not in names:
                names.append(name)
        self.names = tuple(names)
        self.value = str(rng.randrange(10000, 99999))  # upper end left out, as in RULER
        texts = stream.templates
        self._lines = [texts.vt_first.format(names[0], self.value)]
        self._lines += [texts.vt_next.format(new, old) for old, new in pairwise(names)]
        self._stream = stream

    def draft(self, noises: int, places: random.Random) -> Draft:
        """The chain in ``noises`` lines, each link before another one of them, in order."""
        texts = self._stream.templates
        lines = [texts.noise] * noises
        for shift, place in enumerate(sorted(places.sample(range(noises), len(self._lines)))):
            lines.insert(place + shift, self._lines[shift])
        context, question = lay(texts.vt, context="\n".join(lines), query=self.value)
        prefix = texts.vt_prefix.format(num_v=len(self.names), query=self.value)
        return join(context, question, prefix, self.names)


def plan(stream: Stream, index: int) -> Plan:
    """Sample ``index``: a worked example, then the chain. The example's layout is the stream's, its names are not."""
    example = worked_example(stream, Chain(stream, EXAMPLE_NAME_LETTERS, stream.rng(index, "example")))
    chain = Chain(stream, NAME_LETTERS, stream.rng(index))

    def build(n: int) -> Draft:
        draft = chain.draft(n, stream.rng(index, "places"))
        return draft._replace(context=example + draft.context)

    return Plan(build, unit="noise line", least=HOPS + 1)


def worked_example(stream: Stream, chain: Chain) -> str:
    """An answered chain, filled up to EXAMPLE_TOKENS; as in RULER, these leave its answer prefix and answer out."""

    def build(n: int) -> Draft:
        return chain.draft(n, stream.rng("example places"))

    def cost(n: int) -> int:
        draft = build(n)
        return len(stream.text.encode(draft.context + draft.question.rstrip()))

    room = EXAMPLE_TOKENS - (stream.length - stream.room)
    noises = largest_fit(cost, room, 16, HOPS + 1, f"the worked example of ruler {stream.subset}")
    return answered(build(noises))


def answered(draft: Draft) -> str:
    """A whole prompt with its answer and what separates it from the next."""
    return f"{draft.prompt} {' '.join(draft.references)}\n\n"
