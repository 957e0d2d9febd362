"""The structure of the seven subsets that are made from published texts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.base import BenchmarkError, Text
from benchmarks.ruler import benchmark as ruler
from benchmarks.ruler.source_texts import HOTPOTQA, SOURCES, SQUAD, Corpus
from benchmarks.ruler.tasks import essays
from tests.benchmarks import made_up
from tests.benchmarks.ruler.streams import make, prompt

#: hidden needles and answers of each needle task in essays
NEEDLES = {
    "niah_single_2": (1, 1),
    "niah_single_3": (1, 1),
    "niah_multikey_1": (4, 1),
    "niah_multivalue": (4, 4),
    "niah_multiquery": (4, 4),
}
NEEDLE = re.compile(r"One of the special magic (number|uuid)s for (\S+) is: (\S+)\.")
DOCUMENT = re.compile(r"(?:^|\n\n)Document (\d+):\n")


def documents(context: str) -> list[str]:
    _, *parts = DOCUMENT.split(context.removesuffix("\n\n"))
    assert [int(number) for number in parts[::2]] == list(range(1, len(parts) // 2 + 1))
    return parts[1::2]


@pytest.mark.parametrize("subset", NEEDLES)
def test_needles_lie_between_sentences(text: Text, texts: Path, subset: str) -> None:
    hidden, answers = NEEDLES[subset]
    whole = " ".join(json.loads((texts / "paul_graham" / "PaulGrahamEssays.json").read_text())["text"].split())
    for sample in make(subset, text, texts, 4096, count=4):
        intro, body, end = sample.context.split("\n")
        assert end == "" and intro.startswith("Some special" if answers > 1 else "A special")
        needles = NEEDLE.findall(body)
        kinds, keys, values = zip(*needles, strict=True)
        assert len(needles) == len(set(values)) == hidden and len(sample.references) == answers
        assert set(kinds) == {"uuid" if subset == "niah_single_3" else "number"}
        assert len(set(keys)) == (1 if subset == "niah_multivalue" else hidden)
        for before in NEEDLE.split(body)[::4]:
            assert before.strip() == "" or before.rstrip().endswith(".") or body.endswith(before)
        # the rest is the essays from their beginning, and round again
        rest = " ".join(NEEDLE.sub("", body).split())
        assert (whole + " " + whole).startswith(rest) and len(rest) > len(whole)
        # every reference is the value of a key that is asked for, in the order of the keys
        asked = re.search(r"magic \w+ for (.*) mentioned", sample.question)
        assert asked is not None
        named = re.split(r", and |, ", asked[1])
        of = {key: [value for _, k, value in needles if k == key] for key in named}
        assert sorted(sample.references) == sorted(value for key in named for value in of[key])
        if subset == "niah_multiquery":
            assert list(sample.references) == [of[key][0] for key in named]
        assert sample.answer_prefix.endswith(" are" if answers > 1 else " is")


def test_sentences() -> None:
    split = 'He (Mr. Poe) left.|"Why?"|asked J. Doe.|I.|[2] It was 3.5 miles...|and more!Then:no.|So I.|Yes (done.)|End'
    assert essays.sentences(split.replace("|", " ")) == split.split("|")
    assert essays.sentences("no end") == ["no end"]


def test_hide_equals_its_definition() -> None:
    """Sentences of the words taken, needles before those at the depths: written out for all numbers of words."""
    text = "Ab bc cd. De ef. Fg gh hi ij. Jk."
    haystack = essays.Essays(text)
    words = text.split() * 4
    for count in range(1, len(words)):
        found = essays.sentences(" ".join(words[:count]))
        for depths in ([0], [50], [100], [30, 60], [0, 99, 100]):
            needles = [f"<{n}>" for n in range(len(depths))]
            places = [int(len(found) * (depth / 100)) for depth in depths]
            expected = []
            for n, (start, stop) in enumerate(zip([0, *places], [*places, len(found)], strict=True)):
                expected += [" ".join(found[start:stop]), *needles[n : n + 1]]
            assert haystack.hide(needles, depths, count) == " ".join(expected), (count, depths)


def test_depths_are_rulers() -> None:
    np = pytest.importorskip("numpy")
    assert list(essays.DEPTHS) == np.round(np.linspace(0, 100, num=40, endpoint=True)).astype(int).tolist()


@pytest.mark.parametrize("subset", ["qa_1", "qa_2"])
def test_documents_of_a_question(text: Text, texts: Path, subset: str) -> None:
    corpus: Corpus = SOURCES[subset].load(texts).content
    found = make(subset, text, texts, 4096, count=8)
    places = []
    for index, sample in enumerate(found):
        asked = corpus.questions[index]
        assert sample.references == asked.answers
        assert sample.question.endswith(f"\n\nQuestion: {asked.query} ") and sample.answer_prefix == "Answer:"
        assert sample.question.startswith("Answer the question based on the given documents.")
        shown = [corpus.documents.index(document) for document in documents(sample.context)]
        assert {*asked.own, *asked.near} < set(shown) and len(set(shown)) == len(shown)
        places.append(shown.index(asked.own[0]) / len(shown))
    assert len(set(places)) > 4  # not at one place, as under a fixed permutation
    assert len({sample.context_id for sample in found}) == len(found)


def test_own_documents_come_first_where_room_is_short(text: Text, texts: Path) -> None:
    corpus: Corpus = SOURCES["qa_2"].load(texts).content
    for index, sample in enumerate(make("qa_2", text, texts, count=4)):
        asked = corpus.questions[index]
        shown = {corpus.documents.index(document) for document in documents(sample.context)}
        assert set(asked.own) <= shown and len(asked.own) == 2 and len(asked.near) == 8
        assert shown <= {*asked.own, *asked.near} and 2 < len(shown) < 10


def test_questions_whose_documents_do_not_fit_are_left_out(text: Text) -> None:
    rng = made_up.random.Random(1)
    content = made_up.squad(rng, 3)
    content["data"][0]["paragraphs"][1]["context"] += made_up.prose(rng, 1200)  # the third and fourth question
    corpus = SQUAD.parse([content])
    found = ruler.generate("qa_1", 1024, 0, 4, text, corpus)
    assert [sample.sample_id for sample in found] == [f"ruler/qa_1/1024/0/{index}" for index in (0, 1, 4, 5)]
    assert ruler.generate("qa_1", 1024, 0, 3, text, corpus) == found[:3]
    with pytest.raises(BenchmarkError, match=r"have only 30 questions, .* smaller --limit"):
        ruler.generate("qa_1", 1024, 0, 29, text, corpus)


def test_a_long_document_does_not_end_the_fill(text: Text) -> None:
    rows = made_up.hotpotqa(made_up.random.Random(1), 4)
    for row in rows:
        row["context"][0][1] = [made_up.prose(made_up.random.Random(2), 1500)]
    corpus = HOTPOTQA.parse([rows])
    for length in (1024, 2048):
        for sample in ruler.generate("qa_2", length, 0, 4, text, corpus):
            assert 0.75 * (length - 32) < len(text.encode(prompt(sample))) <= length - 32
            assert max(map(len, documents(sample.context))) < 1000
            assert len(set(documents(sample.context))) == len(documents(sample.context))


def test_all_documents_where_they_run_out(text: Text) -> None:
    corpus = HOTPOTQA.parse([made_up.hotpotqa(made_up.random.Random(1), 2)])
    with pytest.warns(UserWarning, match="qa_2 at 4096 tokens: all 20 documents together do not fill it"):
        (sample,) = ruler.generate("qa_2", 4096, 0, 1, text, corpus)
    assert len(documents(sample.context)) == 20
