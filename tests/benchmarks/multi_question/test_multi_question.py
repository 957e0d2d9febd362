"""Contexts with several questions: where the rows come from, how they are joined, how answers are scored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hub, registry
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Text
from benchmarks.multi_question import passages
from benchmarks.multi_question.benchmark import ANSWER_PREFIX, ANSWER_ROOM
from tests.benchmarks import made_up

LENGTH = 256
#: of two digits each, so that all paragraphs have as many tokens
NUMBERS = range(10, 50)


def paragraph(number: int) -> dict[str, Any]:
    """A paragraph with two questions that have an answer and one that has none."""
    words = " ".join(f"w{number}x{place}" for place in range(8))
    answers = [{"text": f"w{number}x1", "answer_start": 0}] * 2
    return {
        "context": f" Paragraph {number} says {words}. ",
        "qas": [
            {"id": f"{number}a", "question": f"What says {number}?", "answers": answers, "is_impossible": False},
            {"id": f"{number}b", "question": f"And what else does {number} say?", "answers": answers},
            {"id": f"{number}c", "question": f"What does {number} hide?", "answers": [], "is_impossible": True},
        ],
    }


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    articles = [{"title": str(i), "paragraphs": [paragraph(n) for n in NUMBERS[i::10]]} for i in range(10)]
    path = tmp_path / "data" / "dev.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"version": "v2.0", "data": articles}), "utf-8")
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: dict[str, Any]) -> Path:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        return path

    return write


@pytest.fixture
def benchmark() -> Benchmark:
    return registry.get("multi-question")


def row(context: str, question: str, **more: Any) -> dict[str, Any]:
    return {"context": context, "question": question, "answers": ["yes"], **more}


def test_contexts_are_filled_and_questions_have_answers(benchmark: Benchmark, squad: Path, text: Text) -> None:
    samples = benchmark.samples(Request((LENGTH,), limit=6, data=squad), text)
    assert [sample.subset for sample in samples] == ["q1", "q2", "q3", "q4", "q5"] * 6
    by_context: dict[str, list[Sample]] = {}
    for sample in samples:
        by_context.setdefault(sample.context_id, []).append(sample)
    assert len(by_context) == 6
    everything = {number: paragraph(number)["context"].strip() for number in NUMBERS}
    for own in by_context.values():
        assert len({sample.context for sample in own}) == 1 and len({sample.question for sample in own}) == 5
        inside = {number for number, one in everything.items() if f"{one}\n\n" in own[0].context}
        homes = [int(re.findall(r"\d+", sample.question)[0]) for sample in own]
        assert len(inside) > 5 and set(homes) < inside and len(set(homes)) == 5  # each from another paragraph
        for sample, home in zip(own, homes, strict=True):
            assert "hide" not in sample.question and sample.references == (f"w{home}x1",)
            assert tokens(text, sample.context, sample.question) <= LENGTH
        longest = f"Question: And what else does {homes[0]} say?\n"
        for number in set(NUMBERS) - inside:
            assert tokens(text, own[0].context + f"{everything[number]}\n\n", longest) > LENGTH


def tokens(text: Text, context: str, question: str) -> int:
    return len(text.encode(context + question + ANSWER_PREFIX)) + ANSWER_ROOM


def test_a_sample_does_not_depend_on_how_many_are_requested(benchmark: Benchmark, squad: Path, text: Text) -> None:
    many = benchmark.samples(Request((LENGTH,), limit=4, data=squad), text)
    assert benchmark.samples(Request((LENGTH,), limit=2, data=squad), text) == many[:10]
    first_two = benchmark.samples(Request((LENGTH,), ("q2", "q1"), 4, squad), text)
    assert first_two == [sample for sample in many if sample.subset in ("q1", "q2")]
    other = benchmark.samples(Request((LENGTH,), limit=4, data=squad, seed=1), text)
    assert {sample.context_id for sample in many}.isdisjoint(sample.context_id for sample in other)


def test_a_folder_and_the_rows_of_the_hub_are_read_as_the_file(
    benchmark: Benchmark, squad: Path, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [benchmark.samples(Request((LENGTH,), limit=1, data=data), text) for data in (squad, squad.parent)]
    rows = made_up.hub_rows(json.loads(squad.read_text("utf-8")))
    monkeypatch.setattr(hub, "rows", lambda name, *_: rows if name == "rajpurkar/squad_v2" else [])
    passages.published_passages.cache_clear()
    samples.append(benchmark.samples(Request((LENGTH,), limit=1), text))
    passages.published_passages.cache_clear()
    assert samples[0] == samples[1] == samples[2]


def test_rows_that_share_a_context_are_its_questions(
    benchmark: Benchmark, rows: Callable[..., Path], text: Text
) -> None:
    path = rows(
        row("One.", "First?"),
        row("Two.", "Only?", answers=[], answer_prefix="So:"),
        row("One.", "Second?", answers={"text": ["a", "a", "b"]}, answer_prefix=" It is", max_new_tokens=3),
        row("Three.", "Alone?", answers="c"),
        {"context": "One.", "question": "Third?", "answer": ["d"]},
    )
    samples = benchmark.samples(Request(data=path), text)
    assert [(s.context, s.subset, s.references) for s in samples] == [
        ("One.", "q1", ("yes",)),
        ("One.", "q2", ("a", "b")),
        ("One.", "q3", ("d",)),
        ("Three.", "q1", ("c",)),
    ]
    assert (samples[0].question, samples[0].answer_prefix) == ("Question: First?\n", ANSWER_PREFIX)
    assert (samples[1].question, samples[1].answer_prefix, samples[1].max_new_tokens) == ("Second?", " It is", 3)
    assert [s.context for s in benchmark.samples(Request(data=path, limit=1), text)] == ["One."] * 3


def test_at_most_five_questions_of_a_context(benchmark: Benchmark, rows: Callable[..., Path], text: Text) -> None:
    path = rows(*(row("One.", f"Number {n}?") for n in range(7)))
    assert [s.subset for s in benchmark.samples(Request(data=path), text)] == ["q1", "q2", "q3", "q4", "q5"]


def test_the_first_line_is_scored(benchmark: Benchmark) -> None:
    sample = Sample("s", "c", "", "", "", 1, ("the Black Death", "plague"), "q1")
    answers = ("\n\n Black death.\nQuestion: and then?", " great plague")
    found = [(score.score, score.metrics["exact_match"]) for score in (benchmark.score(sample, a) for a in answers)]
    assert found == [(100.0, 100.0), (pytest.approx(200 / 3), 0.0)]


@pytest.mark.parametrize(
    ("length", "message"), [(255, "needs --length 256 or more"), (100_000, "use a shorter --length or give more")]
)
def test_lengths_that_cannot_be_filled(
    benchmark: Benchmark, squad: Path, text: Text, length: int, message: str
) -> None:
    with pytest.raises(BenchmarkError, match=message):
        benchmark.samples(Request((length,), data=squad), text)


def test_finished_contexts_of_another_length(benchmark: Benchmark, rows: Callable[..., Path]) -> None:
    words = Text(lambda text: [0] * len(text.split()), lambda ids: "", "words")
    path = rows(row("w " * 3000, "First?"), row("w " * 3000, "Second?"))
    for length in (3072, 4096, None):
        request = Request((length,) if length else (), data=path)
        benchmark.check_samples(request, benchmark.samples(request, words), words)
    with pytest.raises(BenchmarkError, match="--length says 8,192 tokens, but multi-question/data/0/0 has 3,03"):
        request = Request((8192,), data=path)
        benchmark.check_samples(request, benchmark.samples(request, words), words)
