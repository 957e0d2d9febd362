"""Samples of fidelity: windows of texts, prompts of other benchmarks, names, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Text
from benchmarks.fidelity.benchmark import Fidelity, resolve_fidelity
from benchmarks.fidelity.text_windows import LEAST, TARGET, read_texts, windows

WORDS = " ".join(f"word{number} and{'.' if number % 7 else chr(10)}" for number in range(1500))
LONG = "x" * 3000 + " " + "文" * 3000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text(WORDS, encoding="utf-8")
    rows = [{"text": WORDS.upper(), "more": 1}, {"text": "  "}, {"text": "short"}]
    (tmp_path / "sub" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("a,b", encoding="utf-8")
    return tmp_path


def test_texts_are_read_by_name_from_files_rows_and_folders(folder: Path) -> None:
    assert read_texts(folder) == [WORDS.strip(), WORDS.upper().strip(), "short"]
    assert read_texts(folder / "sub" / "a.jsonl") == [WORDS.upper().strip(), "short"]
    assert read_texts(folder / "other.csv") == ["a,b"]  # any other name is a text


@pytest.mark.parametrize("document", [WORDS, LONG])
@pytest.mark.parametrize("length", [16, 100, 333])
def test_windows_follow_one_another_and_each_part_is_as_long_as_it_may_be(
    document: str, length: int, text: Text
) -> None:
    found = list(windows(document, length, text))
    assert len(found) > 1
    joined = "".join(part for window in found for part in window)
    assert document.startswith(joined)
    place = 0
    for number, (context, question, target) in enumerate(found):
        last = number == len(found) - 1
        assert len(text.encode(context)) <= length < len(text.encode(context + question))
        assert re.fullmatch(r"\s*\S{1,16}", question)
        assert LEAST <= len(text.encode(target)) <= TARGET
        place += len(context + question + target)
        more = re.match(r"\s*\S{1,16}", document[place:])
        if more and not last:
            assert len(text.encode(target + more[0])) > TARGET
    rest = document[place:]
    assert len(text.encode(rest)) < length + TARGET  # nothing that would have made a sample is left out


def test_documents_take_turns_and_the_limit_is_samples(folder: Path, text: Text) -> None:
    whole = Fidelity("text").samples(Request((64,), (), 5, folder), text)
    turns = ["0/0", "1/0", "0/1", "1/1", "0/2"]
    assert [one.sample_id for one in whole] == [f"fidelity:text/text/64/{turn}" for turn in turns]
    assert whole[:3] == Fidelity("text").samples(Request((64,), (), 3, folder), text)
    assert all(one.target and one.question and not one.chat_template and one.length == 64 for one in whole)
    both = Fidelity("text").samples(Request((64, 90), (), 1, folder), text)
    assert [one.length for one in both] == [64, 90]


@pytest.mark.parametrize("reference", ["answer", "repeat"])
def test_other_references_take_the_context_alone_in_the_template(reference: str, folder: Path, text: Text) -> None:
    plain = Fidelity("text").samples(Request((64,), (), 2, folder), text)
    found = Fidelity("text", reference).samples(Request((64,), (), 2, folder), text)
    assert [one.context for one in found] == [one.context for one in plain]
    assert all(one.chat_template and (one.question, one.target) == ("", None) for one in found)
    assert {one.sample_id for one in found}.isdisjoint(one.sample_id for one in plain)


def test_prompts_of_a_benchmark_without_its_labels(text: Text) -> None:
    request = Request((256,), ("keys_1", "keys_2"), 2)
    own = registry.get("needles").samples(request, text)
    found = registry.get("fidelity:needles").samples(request, text)
    assert [one.sample_id for one in found] == [f"fidelity:needles/{one.sample_id}" for one in own]
    assert [replace(one, sample_id="") for one in found] == [replace(one, sample_id="", references=()) for one in own]
    repeated = registry.get("fidelity:needles:repeat").samples(request, text)
    assert [(one.question, one.answer_prefix) for one in repeated] == [("", "")] * 4


def test_facts_are_those_of_the_source() -> None:
    needles, one = registry.get("needles"), registry.get("fidelity:needles")
    assert (one.subsets, one.default_lengths, one.shareable) == (needles.subsets, needles.default_lengths, True)
    assert (one.teacher_forced, Fidelity().teacher_forced) == ("answer", "")
    assert registry.get("fidelity:ruler").notes(Request()) == registry.get("ruler").notes(Request()) != ()
    aime, plain = registry.get("fidelity:aime25"), registry.get("fidelity:text:repeat")
    assert (aime.default_phase, aime.pass_at, aime.cross_check) == ("both", (), None)
    assert (plain.name, plain.subsets, plain.shareable) == ("fidelity:text:repeat", ("text",), False)


class Twice(Benchmark):
    """Two questions on one context, the second with a text to read."""

    name = "twice"
    subsets = ("one",)

    def samples(self, request: Request, text: Text) -> list[Sample]:
        texts: tuple[str | None, ...] = (None, "given")
        return [Sample(f"twice/{n}", "c", "a b c", f"q{n}", "", 4, ("label",), "one", target=texts[n]) for n in (0, 1)]


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.get("needles")
    monkeypatch.setitem(registry._classes, "twice", Twice)


def test_a_context_is_repeated_once(twice: None, text: Text) -> None:
    assert len(Fidelity("twice").samples(Request(), text)) == 2
    (once,) = Fidelity("twice", "repeat").samples(Request(), text)
    assert once.sample_id == "fidelity:twice:repeat/twice/0"


def test_a_given_text_must_be_given(twice: None, text: Text) -> None:
    with pytest.raises(BenchmarkError, match=r"twice has no reference text \(twice/0\); use answer or repeat"):
        Fidelity("twice", "text").samples(Request(), text)


@pytest.mark.parametrize(
    ("named", "reference", "data", "resolved"),
    [
        ("fidelity", None, None, "fidelity:needles"),
        ("fidelity", None, "texts", "fidelity:text"),
        ("fidelity", "repeat", None, "fidelity:needles:repeat"),
        ("fidelity,needles", "repeat", "texts", "fidelity:text:repeat,needles"),
        ("fidelity:ruler,fidelity:needles:repeat", None, "texts", "fidelity:ruler,fidelity:needles:repeat"),
        ("fidelity:needles,fidelity", None, None, "fidelity:needles"),  # once
    ],
)
def test_defaults_follow_the_flags(named: str, reference: str | None, data: str | None, resolved: str) -> None:
    found = resolve_fidelity([registry.get(name) for name in named.split(",")], reference, data and Path(data))
    assert [one.name for one in found] == resolved.split(",")


def test_a_reference_without_fidelity_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="--reference repeat is for fidelity"):
        resolve_fidelity([registry.get("needles")], "repeat", None)


def test_texts_that_are_too_short(tmp_path: Path, text: Text) -> None:
    assert list(windows("a few words", 16, text)) == list(windows(WORDS[:100], 10_000, text)) == []
    (tmp_path / "a.txt").write_text("only a few words", encoding="utf-8")
    with pytest.raises(BenchmarkError, match=r"no text is longer than 64 tokens; use a smaller --length"):
        Fidelity("text").samples(Request((64,), (), None, tmp_path), text)


def test_answers_have_no_score() -> None:
    with pytest.raises(BenchmarkError, match="fidelity:needles compares distributions; "):
        Fidelity("needles").score(Twice().samples(Request(), None)[0], "answer")  # type: ignore[arg-type]
