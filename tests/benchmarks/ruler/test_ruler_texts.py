"""The seven subsets that are made from texts of others: structure, the fill rule, where the texts come from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hub, lmeval_prompts
from benchmarks.base import BenchmarkError, Request, Sample, Text, content_hash
from benchmarks.registry import get
from benchmarks.ruler import benchmark as ruler
from benchmarks.ruler.source_texts import ESSAYS, HOTPOTQA, SOURCES, SQUAD, Corpus
from benchmarks.ruler.tasks import essays
from benchmarks.ruler.tasks.plan import Draft, Filler, Plan
from tests.benchmarks import made_up

RULER = get("ruler")
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


def make(subset: str, length: int, folder: Path, text: Text, count: int = 2, seed: int = 0) -> list[Sample]:
    return ruler.generate(subset, length, seed, count, text, SOURCES[subset].load(folder).content)


def prompt(sample: Sample) -> str:
    return sample.context + sample.question + sample.answer_prefix


def documents(context: str) -> list[str]:
    _, *parts = DOCUMENT.split(context.removesuffix("\n\n"))
    assert [int(number) for number in parts[::2]] == list(range(1, len(parts) // 2 + 1))
    return parts[1::2]


@pytest.mark.parametrize("length", [1024, 2048, 4096])
@pytest.mark.parametrize("subset", SOURCES)
def test_fits_and_one_more_unit_would_not(
    text: Text, texts: Path, subset: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    draw = Filler.draw

    def recorded(filler: Filler, plan: Plan) -> Draft:
        plans.append(plan)
        return draw(filler, plan)

    monkeypatch.setattr(Filler, "draw", recorded)
    for sample, plan in zip(make(subset, length, texts, text), plans, strict=True):
        if subset in NEEDLES:
            body = sample.context.split("\n")[1]
            units = len(NEEDLE.sub("", body).split())
        else:
            units = len(documents(sample.context))
        assert plan.build(units).prompt == prompt(sample)
        room = length - sample.max_new_tokens
        assert len(text.encode(prompt(sample))) <= room < len(text.encode(plan.build(units + 1).prompt))
        assert sample.max_new_tokens == (128 if subset in NEEDLES else 32)
        assert sample.length == length and sample.context_id == content_hash(sample.context)


@pytest.mark.parametrize("subset", NEEDLES)
def test_needles_lie_between_sentences(text: Text, texts: Path, subset: str) -> None:
    hidden, answers = NEEDLES[subset]
    whole = " ".join(json.loads((texts / "paul_graham" / "PaulGrahamEssays.json").read_text())["text"].split())
    for sample in make(subset, 4096, texts, text, count=4):
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
    text = 'He (Mr. Poe) left. "Why?" asked J. Doe. I. [2] It was 3.5 miles... and more!Then:no. So I. Yes (done.) End'
    assert essays.sentences(text) == [
        "He (Mr. Poe) left.",
        '"Why?"',
        "asked J. Doe.",
        "I.",
        "[2] It was 3.5 miles...",
        "and more!Then:no.",
        "So I.",
        "Yes (done.)",
        "End",
    ]
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
    found = make(subset, 4096, texts, text, count=8)
    places = []
    for index, sample in enumerate(found):
        asked = corpus.questions[index]
        assert sample.references == asked.answers
        assert sample.question.endswith(f"\n\nQuestion: {asked.query} ") and sample.answer_prefix == "Answer:"
        assert sample.question.startswith("Answer the question based on the given documents.")
        shown = [corpus.documents.index(document) for document in documents(sample.context)]
        assert len(set(shown)) == len(shown)
        assert set(asked.own) <= set(shown)
        assert set(asked.near) <= set(shown) and len(shown) > len(asked.own) + len(asked.near)
        places.append(shown.index(asked.own[0]) / len(shown))
    assert len(set(places)) > 4  # not at one place, as under a fixed permutation
    assert len({sample.context_id for sample in found}) == len(found)


def test_own_documents_come_first_where_room_is_short(text: Text, texts: Path) -> None:
    corpus: Corpus = SOURCES["qa_2"].load(texts).content
    for index, sample in enumerate(make("qa_2", 1024, texts, text, count=4)):
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


def test_all_documents_where_they_run_out(text: Text) -> None:
    corpus = HOTPOTQA.parse([made_up.hotpotqa(made_up.random.Random(1), 2)])
    with pytest.warns(UserWarning, match="qa_2 at 4096 tokens: all 20 documents there are do not fill it"):
        (sample,) = ruler.generate("qa_2", 4096, 0, 1, text, corpus)
    assert len(documents(sample.context)) == 20


@pytest.mark.parametrize("subset", ruler.FAMILIES)
def test_any_length(subset: str, tmp_path: Path) -> None:
    words = Text(lambda s: [0] * len(s.split()), lambda ids: "", "words")
    source = None
    if subset in SOURCES:
        source = SOURCES[subset].load(made_up.write(tmp_path, scale=16)).content
    for length in (1024, 131072):
        (sample,) = ruler.generate(subset, length, 0, 1, words, source)
        used = len(words.encode(prompt(sample))) + sample.max_new_tokens
        assert 0.9 * length < used <= length


@pytest.mark.parametrize("subset", SOURCES)
def test_a_stream_depends_on_nothing_else(text: Text, texts: Path, subset: str) -> None:
    first = make(subset, 1024, texts, text, count=3)
    assert make(subset, 1024, texts, text, count=1) == first[:1]
    assert make(subset, 1024, texts, text, count=1, seed=1)[0].context != first[0].context
    request = Request(lengths=(2048, 1024), limit=1, subsets=("vt", subset), data=texts)
    assert [s for s in RULER.samples(request, text) if s.subset == subset and s.length == 1024] == first[:1]


def test_all_thirteen_from_a_folder(text: Text, texts: Path) -> None:
    request = Request(lengths=(1024,), limit=1, data=texts)
    found = RULER.samples(request, text)
    assert [s.subset for s in found] == list(RULER.subsets) and RULER.notes(request) == ()
    plain = RULER.samples(Request(lengths=(1024,), limit=1), text)
    assert plain == [s for s in found if s.subset not in SOURCES]


def test_what_is_missing_is_said(text: Text, texts: Path, tmp_path: Path) -> None:
    (note,) = RULER.notes(Request())
    assert note.startswith("ruler: 7 of 13 subsets not run") and "--data" in note and "--subset" in note
    assert all(name in note for name in SOURCES) and "squad/*.json" in note
    made_up.write(tmp_path)
    (tmp_path / "squad" / "dev.json").unlink()
    request = Request(data=tmp_path, lengths=(1024,), limit=1)
    (note,) = RULER.notes(request)
    assert "1 of 13" in note and "qa_1" in note and "niah" not in note
    assert {s.subset for s in RULER.samples(request, text)} == set(RULER.subsets) - {"qa_1"}
    with pytest.raises(BenchmarkError, match=r"has no squad/\*.json \(SQuAD 2.0's dev-v2.0.json\)"):
        RULER.check(Request(data=tmp_path, subsets=("qa_1",)))
    assert RULER.notes(Request(subsets=("vt",))) == ()


def test_names_of_nvidias_folder_will_do(text: Text, texts: Path, tmp_path: Path) -> None:
    for name, new in (("paul_graham/PaulGrahamEssays", "PaulGrahamEssays"), ("squad/dev", "squad")):
        (tmp_path / f"{new}.json").write_bytes((texts / f"{name}.json").read_bytes())
    assert ESSAYS.load(tmp_path) == ESSAYS.load(texts) and SQUAD.load(tmp_path) == SQUAD.load(texts)


def test_cache_follows_the_texts(text: Text, tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    generate = ruler.generate
    monkeypatch.setattr(ruler, "generate", lambda *args: made.append(args[0]) or generate(*args))
    request = Request(data=made_up.write(tmp_path), lengths=(1024,), limit=1, subsets=("niah_single_2", "qa_2"))
    first = RULER.samples(request, text)
    assert RULER.samples(request, text) == first and made == ["niah_single_2", "qa_2"]
    path = tmp_path / "paul_graham" / "PaulGrahamEssays.json"
    path.write_text(json.dumps({"text": "Another start. " + json.loads(path.read_text())["text"]}))
    again = RULER.samples(request, text)
    assert made == ["niah_single_2", "qa_2", "niah_single_2"]
    assert "Another start." in again[0].context and again[1] == first[1]
    assert len(list((cache_home / "kvprune" / "benchmarks").iterdir())) == 3


def squad_rows(content: dict[str, Any]) -> list[dict[str, Any]]:
    """SQuAD as the hub has it."""
    return [
        {
            "title": article["title"],
            "context": paragraph["context"],
            "question": qa["question"],
            "answers": {"text": [answer["text"] for answer in qa["answers"]], "answer_start": []},
        }
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def hotpotqa_rows(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """HotpotQA as the hub has it."""
    return [
        {
            **row,
            "context": {"title": [t for t, _ in row["context"]], "sentences": [s for _, s in row["context"]]},
            "supporting_facts": {"title": [t for t, _ in row["supporting_facts"]], "sent_id": [0, 0]},
        }
        for row in content
    ]


def test_forms_of_the_hub(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def content(name: str) -> Any:
        return json.loads((texts / name).read_text())

    sets = {
        "baber/paul_graham_essays": [content("paul_graham/PaulGrahamEssays.json")],
        "rajpurkar/squad_v2": squad_rows(content("squad/dev.json")),
        "hotpotqa/hotpot_qa": hotpotqa_rows(content("hotpotqa/dev.json")),
    }
    monkeypatch.setattr(hub, "rows", lambda name, config, split, hint: sets[name])
    for source in (ESSAYS, SQUAD, HOTPOTQA):
        assert source.load(None) == source.load(texts)
    # both forms side by side are read once
    both = HOTPOTQA.parse([content("hotpotqa/dev.json"), sets["hotpotqa/hotpot_qa"]])
    assert both == HOTPOTQA.load(texts).content


def test_hub_is_left_alone_unless_a_subset_is_named(monkeypatch: pytest.MonkeyPatch, text: Text) -> None:
    asked: list[str] = []

    def rows(name: str, *_: object) -> Any:
        asked.append(name)
        raise BenchmarkError("no hub")

    monkeypatch.setattr(hub, "rows", rows)
    assert len(RULER.samples(Request(lengths=(1024,), limit=1), text)) == 6 and asked == []
    with pytest.raises(BenchmarkError, match="no hub"):
        RULER.check(Request(subsets=("vt", "qa_2")))
    assert asked == ["hotpotqa/hotpot_qa"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("paul_graham/essays.json", "{", r"essays.json: not valid JSON .*; give .* PaulGrahamEssays.json"),
        ("paul_graham/essays.json", '{"title": 3}', r"not in the form of essays \(no 'text'\)"),
        ("paul_graham/essays.json", '{"text": " "}', "no essays in it"),
        ("squad/dev.json", '{"data": 5}', "not in the form of SQuAD"),
        ("squad/dev.json", '{"data": [{"title": "T", "paragraphs": [{"context": 5, "qas": []}]}]}', "is int, not text"),
        ("squad/dev.json", '{"data": []}', "no SQuAD in it; needed: SQuAD 2.0's dev-v2.0.json"),
        ("hotpotqa/dev.json", '[{"question": "Q"}]', r"dev.json: not in the form of HotpotQA \(no 'context'\)"),
    ],
)
def test_broken_files_are_named(file: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(content)
    with pytest.raises(BenchmarkError, match=message):
        RULER.check(Request(data=tmp_path))


def test_version_is_raised_when_samples_change(text: Text, texts: Path) -> None:
    """As for the other six."""
    if ruler.wonderwords_version() != "3.0.1" or lmeval_prompts.installed_version() != lmeval_prompts.PINNED:
        pytest.skip("the hash is of wonderwords 3.0.1 and the pinned lm-eval")
    found = RULER.samples(Request(lengths=(1024,), limit=2, data=texts, subsets=tuple(SOURCES)), text)
    assert (RULER.version, content_hash([s.to_json() for s in found])) == ("1", "2fcf9845d6373d69")
