"""RULER's needle tasks: values hidden under keys in a haystack; the question is for some of the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.ruler.tasks.essays import DEPTHS, essays
from benchmarks.ruler.tasks.plan import Draft, Plan, Stream, join, lay
from benchmarks.ruler.tasks.words import Distinct

#: n -> n lines of the haystack, the same at every call
Haystack = Callable[[int], list[str]]


@dataclass(frozen=True)
class Niah:
    """What a needle task hides: kinds as in :func:`benchmarks.ruler.tasks.words.draw`.

    keys     hidden keys, not counting a haystack of needles
    values   values of each key
    asked    keys that the question is for
    """

    haystack: str
    key: str = "words"
    value: str = "numbers"
    keys: int = 1
    values: int = 1
    asked: int = 1


TASKS = {
    "niah_single_1": Niah("repeat"),
    "niah_single_2": Niah("essay"),
    "niah_single_3": Niah("essay", value="uuids"),
    "niah_multikey_1": Niah("essay", keys=4),
    "niah_multikey_2": Niah("needle"),
    "niah_multikey_3": Niah("needle", key="uuids", value="uuids"),
    "niah_multivalue": Niah("essay", values=4),
    "niah_multiquery": Niah("essay", keys=4, asked=4),
}


def plan(stream: Stream, index: int) -> Plan:
    """Sample ``index``. Keys and values are distinct."""
    task = TASKS[stream.subset]
    return _in_essays(stream, task, index) if task.haystack == "essay" else _in_lines(stream, task, index)


def _in_essays(stream: Stream, task: Niah, index: int) -> Plan:
    """Needles between the sentences of the essays, which always begin at their beginning."""
    rng = stream.rng(index)
    keys = Distinct(task.key, stream.rng(index, "keys")).first(task.keys)
    drawn = Distinct(task.value, stream.rng(index, "values")).first(task.keys * task.values)
    values = {key: drawn[i * task.values : (i + 1) * task.values] for i, key in enumerate(keys)}
    needles = [needle(stream, task, key, value) for key in keys for value in values[key]]
    stream.rng(index, "order").shuffle(needles)
    depths = rng.sample(DEPTHS, len(needles))
    asked = rng.sample(keys, task.asked)
    answers = [value for key in asked for value in values[key]]
    haystack = essays(stream.source)

    def build(n: int) -> Draft:
        return draft(stream, task, haystack.hide(needles, depths, n), asked, answers)

    return Plan(build, unit="word of the essays", least=1)


def _in_lines(stream: Stream, task: Niah, index: int) -> Plan:
    """One needle before a random line of the haystack."""
    rng = stream.rng(index)
    keys = Distinct(task.key, stream.rng(index, "keys"))
    values = Distinct(task.value, stream.rng(index, "values"))
    depth = rng.random()  # a fraction of the haystack: the same sample can be built at any size

    def needles(count: int) -> list[str]:
        pairs = zip(keys.first(count), values.first(count), strict=True)
        return [needle(stream, task, key, value) for key, value in pairs]

    haystacks: dict[str, Haystack] = {
        "repeat": lambda n: [stream.templates.noise] * n,
        "needle": lambda n: needles(n + 1)[1:],  # the first pair is the one that the question is for
    }
    haystack = haystacks[task.haystack]

    def build(n: int) -> Draft:
        lines = haystack(n)
        lines.insert(int(depth * n), needles(1)[0])
        return draft(stream, task, "\n".join(lines), keys.first(1), values.first(1))

    return Plan(build, unit="haystack line", least=1)


def needle(stream: Stream, task: Niah, key: str, value: str) -> str:
    """One hidden sentence."""
    return stream.templates.needle.format(type_needle_v=task.value, key=key, value=value)


def draft(stream: Stream, task: Niah, haystack: str, asked: Sequence[str], answers: Sequence[str]) -> Draft:
    """The texts of a question for these keys. The templates are worded for several answers."""
    template, prefix, kind = stream.templates.niah, stream.templates.niah_prefix_many, task.value
    if len(answers) == 1:
        # RULER's own rewriting, in its order
        for many, one in (("Some", "A"), ("are all", "is"), ("are", "is")):
            template = template.replace(many, one)
        prefix, kind = stream.templates.niah_prefix, kind.removesuffix("s")
    query = ", ".join(asked[:-1]) + ", and " + asked[-1] if len(asked) > 1 else asked[0]
    context, question = lay(template, context=haystack, type_needle_v=kind, query=query)
    return join(context, question, prefix.format(kind, query), tuple(answers))
