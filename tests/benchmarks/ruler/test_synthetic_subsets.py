"""The structure of the six subsets that are made from nothing but words and random strings."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest

from benchmarks import lmeval_prompts
from benchmarks.base import Text
from benchmarks.ruler import benchmark as ruler
from benchmarks.ruler.tasks import cwe, words
from tests.benchmarks.ruler.streams import make, prompt

SUBSETS = tuple(name for name in ruler.FAMILIES if name not in ruler.SOURCES)
#: where the question starts: at the last match in the whole prompt (kvpress' rule for NVIDIA's files)
QUESTION = {
    "niah": r"What (?:is|are all) the special magic ",
    "vt": r"Question: Find all variables that are assigned the value ",
    "cwe": r"Question: What are the 10 most common words in the above list\?",
    "fwe": r"Question: Do not provide any explanation\.",
}
WORD = re.compile(r"\d+\. (.*?)(?= \d+\. |$)")


@pytest.mark.parametrize("subset", SUBSETS)
def test_question_starts_at_the_last_match(text: Text, subset: str) -> None:
    for sample in make(subset, text):
        *_, last = re.finditer(QUESTION[subset.split("_")[0]], prompt(sample))
        assert last.start() == len(sample.context)
        assert sample.context.endswith("\n")
        assert sample.question.endswith(("? ", ". ")) and not sample.answer_prefix.startswith(" ")


@pytest.mark.parametrize("subset", ["niah_single_1", "niah_multikey_2", "niah_multikey_3"])
def test_niah_asks_for_one_of_distinct_keys(text: Text, subset: str) -> None:
    kind = "uuid" if subset == "niah_multikey_3" else "number"
    for sample in make(subset, text, length=2048, count=5):
        needles = re.findall(rf"^One of the special magic {kind}s for (\S.*) is: (\S+)\.$", sample.context, re.M)
        lines = sample.context.count("\n") - 1
        assert len(needles) == (1 if subset == "niah_single_1" else lines)
        assert len({key for key, _ in needles}) == len({value for _, value in needles}) == len(needles)
        key = re.fullmatch(rf"What is the special magic {kind} for (.*) mentioned in .*\? ", sample.question)
        assert key is not None and sample.references == (dict(needles)[key[1]],)
        value = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}" if kind == "uuid" else r"\d{7}"
        assert re.fullmatch(value, sample.references[0])


def test_vt_has_one_worked_example_and_a_chain_of_five(text: Text) -> None:
    for sample in make("vt", text, count=5):
        example, main = sample.context.split("\n\nMemorize")
        for part, letters in ((example, 3), (main, 5)):
            names = re.findall(rf"^VAR ([A-Z]{{{letters}}}) = ", part, re.M)
            assert len(set(names)) == 5
            (value,) = re.findall(rf"^VAR {names[0]} = (\d{{5}})$", part, re.M)
            for old, new in pairwise(names):
                assert f"VAR {new} = VAR {old} \n" in part
            if part is example:
                asked = f"value {value}, they are:  {' '.join(names)}"
                assert example.endswith(asked)
                filled = example.split(" Answer:")[0]
                noise = lmeval_prompts.templates().noise + "\n"
                assert len(text.encode(filled)) + 30 <= 500 < len(text.encode(noise + filled)) + 30
            else:
                assert f"value {value} " in sample.question and sample.references == tuple(names)


@pytest.mark.parametrize(("length", "example", "common", "uncommon"), [(2048, (3, 1), 6, 1), (4096, (10, 3), 30, 3)])
def test_cwe_repeats(text: Text, length: int, example: tuple[int, int], common: int, uncommon: int) -> None:
    for sample in make("cwe", text, length=length):
        first, second = (Counter(WORD.findall(line)) for line in sample.context.split("\n") if line.startswith("1. "))
        assert Counter(first.values()) == {example[0]: 10, example[1]: 10 if length < 4096 else 30}
        assert set(second.values()) == {common, uncommon}
        assert {word for word, n in second.items() if n == common} == set(sample.references)
        assert len(sample.references) == 10
        shown = re.search(r"in the list are: (1\. .*)\n", sample.context)
        assert shown is not None
        assert set(WORD.findall(shown[1])) == {word for word, n in first.items() if n == example[0]}


def test_cwe_adds_pairs_of_words_when_its_words_run_out(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    few = words.lists()._replace(all=words.lists().all[:60])
    monkeypatch.setattr(cwe, "lists", lambda: few)
    (sample,) = make("cwe", text, length=4096, count=1)
    listed = Counter(WORD.findall(sample.context.split("\n")[-2]))
    single = {word for word in listed if word in few.all}
    pairs = listed.keys() - single
    assert len(single) == 60 and len(pairs) > 20
    for pair in pairs:
        halves = [(pair[:place], pair[place + 1 :]) for place, sign in enumerate(pair) if sign == "-"]
        assert any(one in words.lists().adjectives and two in words.lists().nouns for one, two in halves)
    assert {listed[word] for word in sample.references} == {30} and {listed[pair] for pair in pairs} == {3}


def test_fwe_counts_follow_the_zeta_law(text: Text) -> None:
    zeta = pytest.importorskip("scipy.special").zeta(2.0)
    for sample in make("fwe", text, length=2048):
        counted = Counter(sample.context.split("coded words. ")[1].split())
        (dots, n_dots), *ranked = counted.most_common()
        assert dots == "..." and sample.references == tuple(word for word, _ in ranked[:3])
        assert all(re.fullmatch("[a-z]{6}", word) for word, _ in ranked)
        counts = [n_dots, *(n for _, n in ranked)]
        vocabulary = (2048 - 50) // 50
        laws = [[int(n * rank**-2.0 / zeta) for rank in range(1, vocabulary + 1)] for n in range(100, 4000)]
        assert counts in [[n for n in law if n] for law in laws]


def test_needle_depths_cover_the_haystack(text: Text) -> None:
    found = make("niah_single_1", text, count=60)
    depths = [s.context.index("One of") / len(s.context) for s in found]
    assert min(depths) < 0.25 and max(depths) > 0.8
    assert sum(depth < 0.5 for depth in depths) in range(15, 46)
