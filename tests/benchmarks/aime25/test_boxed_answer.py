"""Boxed answers: a golden file of endings, brace counting against a second implementation, a second scorer."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

import benchmarks.registry
from benchmarks.aime25 import math_verify_check
from benchmarks.aime25.boxed_answer import last_box, whole_number
from benchmarks.base import Sample
from benchmarks.thinking_tags import TAGS, after_thought

ENDINGS = yaml.safe_load((Path(__file__).parent / "data" / "answer_endings.yaml").read_text("utf-8"))


def sample(answer: int) -> Sample:
    return Sample("aime25/x", "c", "problem", "", "", 32_000, (str(answer),), "aime25")


@pytest.mark.parametrize("ending", ENDINGS, ids=[str(number) for number in range(len(ENDINGS))])
def test_golden_endings(ending: dict[str, Any]) -> None:
    benchmark = benchmarks.registry.get("aime25")
    number = ending["number"]
    golds = (0, 52, 70, 1000) if number is None else (number, (number + 1) % 1000, (number - 1) % 1000)
    scores = [benchmark.score(sample(gold), ending["text"]) for gold in golds]
    assert [score.score for score in scores] == [100.0 * (gold == number) for gold in golds]
    assert {score.metrics["answered"] for score in scores} == {float(number is not None)}


def naive_last_box(text: str) -> str | None:
    """From the last opening backwards: the first one whose braces close."""
    for start in range(len(text) - 1, -1, -1):
        for command in (r"\boxed", r"\fbox"):
            if not text.startswith(command, start):
                continue
            place = start + len(command)
            while place < len(text) and text[place].isspace():
                place += 1
            if text[place : place + 1] != "{":
                continue
            depth = 0
            for end in range(place, len(text)):
                if len(text[place:end]) - len(text[place:end].rstrip("\\")) & 1:
                    continue  # an escaped brace
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                if depth == 0:
                    return text[place + 1 : end]
    return None


def test_the_last_box_is_that_of_a_second_implementation() -> None:
    draw = random.Random(3)
    pieces = [r"\boxed{", r"\fbox{", r"\boxed {", "{", "}", "}", "7", r"\{", r"\}", "a ", r"\\", r"\text{"]
    texts = ["".join(draw.choices(pieces, k=draw.randint(1, 14))) for _ in range(4000)]
    found = [last_box(text) for text in texts]
    assert found == [naive_last_box(text) for text in texts]
    assert 500 < sum(box is not None for box in found) < 3500


def test_many_open_boxes_are_read_once() -> None:
    assert last_box(r"\boxed{" * 20_000 + "7}") == "7"
    assert last_box(r"\boxed 7" + "." * 200_000) is None


def test_a_number_of_any_length_is_read_or_refused() -> None:
    assert whole_number("12{,}345{,}678") == 12_345_678
    assert whole_number("9" * 18) == 10**18 - 1
    assert whole_number("9" * 5000) is None


@pytest.mark.parametrize("content", ["16", "016", r"\text{588}", "70.0", "x=70", r"$70$", r"70\%", r"144^\circ", "0"])
def test_math_verify_agrees_on_ordinary_boxes(content: str) -> None:
    number = whole_number(content)
    assert number is not None
    assert [math_verify_check.says_equal(content, gold) for gold in (number, number + 1)] == [True, False]


@pytest.mark.parametrize(("content", "gold"), [(r"\frac{140}{2}", 70), ("2^{8}", 256), ("2^8", 256)])
def test_math_verify_evaluates_what_we_do_not(content: str, gold: int) -> None:
    assert whole_number(content) is None
    assert math_verify_check.says_equal(content, gold) is True


@pytest.mark.parametrize("content", [r"\lfloor 70\rfloor", r"\approx 70", r"\ornament 70", r"70\qquad\star"])
def test_math_verify_is_asked_where_our_reading_finds_none(content: str) -> None:
    """And a number that it alone finds is a disagreement, which runs list."""
    assert whole_number(content) is None and math_verify_check.says_equal(content, 70) is None
    expected = math_verify_check.says_equal(content, 70, unread=True)
    assert expected is not None
    score = benchmarks.registry.get("aime25").score(sample(70), rf"\boxed{{{content}}}")
    assert (score.score, score.metrics) == (0, {"answered": 0, "math_verify": float(not expected)})


@pytest.mark.parametrize("content", [r"\Large 70", r"\small 70", "7\u200b0", r"\scriptstyle 70", r"\mbox{70}"])
def test_math_verify_reads_formatting_as_we_do(content: str) -> None:
    assert [math_verify_check.says_equal(content, gold) for gold in (70, 7)] == [True, False]


@pytest.mark.parametrize("content", [r"\textcolor{red}{70}", r"\emph{70}", r"\LARGE70", r"\large \textbf{70}"])
def test_math_verify_is_not_asked_about_formatting_that_it_cannot_read(content: str) -> None:
    assert whole_number(content) == 70
    assert math_verify_check.says_equal(content, 70) is None


UNBOUNDED = ["9^{9^{9}}", "9^{99}", "9^{9}^{9}", "99999!", "2^{8}3^{4}", r"\sum_{n=1}^{9}n", r"\binom{9}{3}", "9^10"]


UNBOUNDED += [r"\binom{99999}{50000}", r"\Gamma\Gamma 70", r"\int 7", r"\exp 70", r"\f\g\h 70", r"\approx 12345"]


@pytest.mark.parametrize("content", [*UNBOUNDED, "9" * 101])
def test_math_verify_is_not_asked_what_could_take_for_ever(content: str) -> None:
    assert math_verify_check.says_equal(content, 1, unread=True) is None


def test_a_disagreement_and_a_missing_opinion_are_distinguished() -> None:
    benchmark = benchmarks.registry.get("aime25")
    metrics = [benchmark.score(sample(70), text).metrics for text in (r"\boxed{70}", r"\boxed{\frac{140}{2}}", "70")]
    assert metrics == [{"answered": 1, "math_verify": 1}, {"answered": 0, "math_verify": 0}, {"answered": 0}]


def test_scoring_the_rest_after_a_thought_again_changes_nothing() -> None:
    texts = [str(ending["text"]) for ending in ENDINGS]
    for text, thinking in itertools.product(texts, (True, False)):
        once = after_thought(text, thinking)
        assert after_thought(once, False) == once
        assert not any(tag in once for pair in TAGS for tag in pair)
    assert after_thought("so 5</think> 6", thinking=True) == " 6"
    assert after_thought("so 5", thinking=True) == ""  # cut off inside its thought
    assert after_thought("so 5", thinking=False) == "so 5"
