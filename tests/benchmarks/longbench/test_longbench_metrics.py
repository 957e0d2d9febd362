"""LongBench's metrics: cases worked out by hand, and the published scores of real predictions."""

from __future__ import annotations

import difflib
import json
import random
import string
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks.base import Sample
from benchmarks.longbench import metrics
from benchmarks.longbench.benchmark import TASKS
from benchmarks.registry import get

#: scored with python-Levenshtein installed, which THUDM does not ask for
OTHER_SIMILARITY = ("lcc", "repobench-p")
CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")


def predictions(folder: Path, subset: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{subset}.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("subset", TASKS)
def test_the_published_scores_of_real_predictions(longbench_data: Path, subset: str) -> None:
    folder = longbench_data / "predictions" / ("llama3-8b-zh" if subset in CHINESE else "mistral-7b")
    published = json.loads((folder / "result.json").read_text("utf-8"))[subset]
    scores = [
        get("longbench").score(answer_to(subset, row["answers"], row["all_classes"]), row["pred"]).score
        for row in predictions(folder, subset)
    ]
    mean = round(sum(scores) / len(scores), 2)
    if subset in OTHER_SIMILARITY:
        assert 1.3 < published - mean < 1.9
    else:
        assert mean == pytest.approx(published, abs=0.0101)


def answer_to(subset: str, answers: list[str], classes: list[str] | None = None) -> Sample:
    return Sample("id", "c", "", "", "", 1, tuple(answers), subset, all_classes=tuple(classes or ()))


def test_code_similarity_is_that_of_fuzzywuzzy_on_difflib(longbench_data: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # on difflib
        from fuzzywuzzy import fuzz
    if fuzz.SequenceMatcher is not difflib.SequenceMatcher:
        pytest.skip("python-Levenshtein is installed, so fuzzywuzzy computes something else")
    rows = predictions(longbench_data / "predictions" / "mistral-7b", "lcc")
    lines = [row["pred"].strip("\n").split("\n")[0] for row in rows]
    pairs = [(line, row["answers"][0]) for line, row in zip(lines, rows, strict=True)]
    pairs += [("", "x"), ("x", "x"), ("ab" * 150, "ba" * 150)]
    pairs = [(line, other) for line, other in pairs if not any(mark in line for mark in metrics.NO_CODE)]
    assert len(pairs) > 400
    assert [metrics.code_similarity(*pair) for pair in pairs] == [fuzz.ratio(*pair) / 100 for pair in pairs]


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ("The cat, a dog!", "cat dog", 1.0),
        ("cat", "a cat sat", 2 / 3),  # precision 1, recall 1/2
        ("cat cat", "cat", 2 / 3),  # a word counts as often as it comes
        ("anthem", "them", 0.0),  # only whole words are articles
        ("", "cat", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_words_in_common(prediction: str, reference: str, expected: float) -> None:
    assert metrics.qa_f1(prediction, reference) == pytest.approx(expected)


def test_chinese_words_are_jieba_s_without_punctuation() -> None:
    assert metrics.qa_f1_zh("北京大学。", "“北京大学”") == 1.0
    assert metrics.qa_f1_zh("我在北京大学", "北京大学") == pytest.approx(2 / 4)  # 我 在 北京大学
    assert metrics.qa_f1_zh("。", "。") == 0.0
    assert metrics.rouge_zh("我在北京大学", "北京大学") == pytest.approx(2 / 4, abs=1e-6)


def lcs(one: list[str], other: list[str]) -> int:
    row = [0] * (len(other) + 1)
    for word in one:
        before = row[:]
        for j, beside in enumerate(other, 1):
            row[j] = before[j - 1] + 1 if word == beside else max(before[j], row[j - 1])
    return row[-1]


def test_rouge_l_of_single_sentences_is_the_longest_common_subsequence() -> None:
    draw = random.Random(0)
    for _ in range(50):
        one, other = (draw.sample(string.ascii_lowercase, draw.randint(1, 20)) for _ in range(2))
        common = lcs(one, other)
        expected = 2 * common / (len(one) + len(other))
        assert metrics.rouge(" ".join(one), " ".join(other)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("prediction", "reference"), [("", "a"), ("...", "a"), ("a", "."), ("a", "")])
def test_rouge_without_any_text(prediction: str, reference: str) -> None:
    assert metrics.rouge(prediction, reference) == 0.0


def test_rouge_of_a_very_long_answer_is_not_lost_to_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    words = [f"w{i}" for i in range(5 * limit)]
    reference = words[:10]
    assert metrics.rouge(" ".join(words), " ".join(reference)) == pytest.approx(20 / (5 * limit + 10), abs=1e-6)
    assert sys.getrecursionlimit() == limit


def test_rouge_does_not_depend_on_the_depth_of_the_caller() -> None:
    def deeper(calls: int) -> float:
        return deeper(calls - 1) if calls else metrics.rouge.__wrapped__(text, text)

    text = " ".join(f"w{i}" for i in range(400))
    assert deeper(0) == deeper(700) == pytest.approx(1.0)


def test_an_error_of_rouge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_rouge", Mock(side_effect=RecursionError))
    with pytest.raises(RecursionError):
        metrics.rouge("never seen", "before")


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ("Date or City", "Date", 0.5),
        ("City", "Date", 0.0),
        ("Other location", "Other location", 1.0),  # the class "location" is part of the right one's name
        ("State", "Date", 0.0),
        ("Mountain location Other location", "Other location", 1.0),
    ],
)
def test_classes(prediction: str, reference: str, expected: float) -> None:
    classes = ["Date", "City", "location", "Other location"]
    assert metrics.classification(prediction, reference, classes) == expected


def test_a_class_after_one_that_was_dropped_stays() -> None:
    for classes, expected in ((["big", "city", "big city bus"], 0.5), (["big", "big city bus", "city"], 1.0)):
        assert metrics.classification("big city bus", "big city bus", classes) == expected


@pytest.mark.parametrize(
    ("subset", "answer", "prediction", "expected"),
    [
        ("passage_count", "7", "7", 100),
        ("passage_count", "7", "There are 7 of 17 7", 200 / 3),
        ("passage_count", "7", "seven", 0),
        ("passage_retrieval_en", "Paragraph 15", "Paragraph 15.", 100),
        ("passage_retrieval_en", "Paragraph 15", "15 or Paragraph 5", 50),
        ("passage_retrieval_zh", "段落5", "段落5", 100),
        ("lcc", "    return x", "\n    return x\nreturn y", 100),
        ("lcc", "    return x", "# first\n```\n    return x", 100),
        ("lcc", "x", "// only a comment", 0),
        ("trec", "Date", "\n\nDate\nCity", 100),
        ("triviaqa", "Bob Dylan", "\nBob Dylan\nQuestion: who else", 100),
        ("samsum", "Tom is ill", "Tom is ill\nTom is well and Tom is fine", 100),
        ("hotpotqa", "Bob Dylan", "Bob\nDylan", 100),  # not few-shot, so all lines count
        ("musique", ["University of Toronto", "UT"], "ut", 100),  # the best reference counts
        ("musique", ["UT", "University of Toronto"], "ut", 100),
        ("musique", ["UT", "University of Toronto"], "somewhere", 0),
    ],
)
def test_subsets(subset: str, answer: str | list[str], prediction: str, expected: float) -> None:
    sample = answer_to(subset, [answer] if isinstance(answer, str) else answer, ["Date", "City"])
    assert get("longbench").score(sample, prediction).score == pytest.approx(expected, abs=1e-4)
