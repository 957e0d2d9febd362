"""RULER's needle tasks: values hidden under keys in a haystack, some of the keys asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.ruler_tasks.plan import Draft, Plan, Stream, join, lay
from benchmarks.ruler_tasks.words import Distinct

#: n -> n lines of the haystack, the same at every call
Haystack = Callable[[int], list[str]]


@dataclass(frozen=True)
class Niah:
    """What a needle task hides: kinds as in :func:`benchmarks.ruler_tasks.words.draw`."""

    haystack: str
    key: str = "words"
    value: str = "numbers"


TASKS = {
    "niah_single_1": Niah("repeat"),
    "niah_multikey_2": Niah("needle"),
    "niah_multikey_3": Niah("needle", key="uuids", value="uuids"),
}


def plan(stream: Stream, index: int) -> Plan:
    """Sample ``index``: one needle before a random line of the haystack. Keys and values are distinct."""
    task = TASKS[stream.subset]
    rng = stream.rng(index)
    keys = Distinct(task.key, stream.rng(index, "keys"))
    values = Distinct(task.value, stream.rng(index, "values"))
    depth = rng.random()  # a fraction of the haystack: the same sample can be built at any size

    def needles(count: int) -> list[str]:
        pairs = zip(keys.first(count), values.first(count), strict=True)
        return [stream.templates.needle.format(type_needle_v=task.value, key=k, value=v) for k, v in pairs]

    haystacks: dict[str, Haystack] = {
        "repeat": lambda n: [stream.templates.noise] * n,
        "needle": lambda n: needles(n + 1)[1:],  # the first pair is the one that is asked for
    }
    haystack = haystacks[task.haystack]

    def build(n: int) -> Draft:
        lines = haystack(n)
        lines.insert(int(depth * n), needles(1)[0])
        return draft(stream, task, "\n".join(lines), keys.first(1)[0], values.first(1)[0])

    return Plan(build, unit="haystack line", least=1)


def draft(stream: Stream, task: Niah, haystack: str, key: str, value: str) -> Draft:
    """The texts for one key with one value; the templates are worded for several of both."""
    template = stream.templates.niah
    # RULER's own rewriting, in its order
    for many, one in (("Some", "A"), ("are all", "is"), ("are", "is")):
        template = template.replace(many, one)
    kind = task.value.removesuffix("s")
    context, question = lay(template, context=haystack, type_needle_v=kind, query=key)
    return join(context, question, stream.templates.niah_prefix.format(kind, key), (value,))
