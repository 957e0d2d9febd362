"""Sample views: what a viewer is told of a sample, from files that may hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis.run_reader import read
from harness.errors import HarnessError
from harness.results import mask_file
from harness.results.mask_file import About
from leaderboard.data.sample_view import Place, sample_view, samples_with_masks, split
from tests.harness.made_runs import FULL, KNORM, lines_of, write_run

SAMPLE = "toy/red/64/0/0"
SHAPE = (2, 3, 8)
#: the six tokens behind the template's two
HOSTILE = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))"),
    *("$$x$$", "\u202eoops", "\0\n"),
)


def masks_of(folder: Path, sample: str = SAMPLE, **more: Any) -> Path:
    """Masks of ``full`` and ``knorm head 0.5``, which keeps the second half of the tokens, all of layer 1 head 2."""
    keep = np.ones((2, *SHAPE), bool)
    keep[1, :, :, :4] = False
    keep[1, 1, 2] = True
    about: dict[str, Any] = {"sample_id": sample, "context_id": "c", "benchmark": "toy", "subset": "red", "length": 64}
    about |= {"shape": SHAPE, "prefix": 2, "cut": 0, "variants": ("full", "knorm head 0.5")}
    texts = {key: more.pop(key) for key in ("tokens", "lengths") if key in more}
    mask_file.write(mask_file.path_of(folder, sample), About(**{**about, **more}), keep, **texts)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = lines_of(FULL, {"red": [100.0, 50.0], "blue": [0.0]}, kept_pairs=48, cached_pairs=48)
    lines += lines_of(KNORM, {"red": [40.0, None], "blue": [10.0]}, kept_pairs=28)
    return write_run(tmp_path / "run", lines)


def test_the_samples_that_have_masks_are_listed_in_the_runs_order(folder: Path) -> None:
    assert samples_with_masks(read(folder)) == []
    for sample in ("toy/blue/64/0/0", SAMPLE, "of/another/run"):
        masks_of(folder, sample)
    found = samples_with_masks(read(folder))
    assert found == [Place(SAMPLE, "toy", "red", 64), Place("toy/blue/64/0/0", "toy", "blue", 64)]


def test_a_view_has_masks_answers_and_references(folder: Path) -> None:
    masks_of(folder, tokens=["<u>", "\n", *"abcdef"])
    view = sample_view(read(folder), SAMPLE)
    assert (view.place, view.shape, view.prefix, view.cut) == (Place(SAMPLE, "toy", "red", 64), SHAPE, 2, 0)
    assert view.tokens == ("<u>", "\n", "a", "b", "c", "d", "e", "f") and view.tokens_note == ""
    assert view.references == (f"right {SAMPLE}",)
    assert view.question is view.answer_prefix is None
    assert [shown.variant for shown in view.variants] == ["full", "knorm head 0.5"]
    control, knorm = view.control, view.shown("knorm head 0.5")
    assert control is not None and (control.variant, control.answers, control.score) == ("full", ("answer 100",), 100)
    assert (knorm.is_control, knorm.answers, knorm.score) == (False, ("answer 40",), 40)
    assert (knorm.has_mask, knorm.agrees) == (True, True)
    assert view.share_by_token("knorm head 0.5").tolist() == [1 / 6] * 4 + [1.0] * 4
    assert view.share_by_head("knorm head 0.5").tolist() == [[0.5, 0.5, 0.5], [0.5, 0.5, 1.0]]
    assert view.share_by_token("full").tolist() == [1.0] * 8
    assert view.kept("knorm head 0.5").sum() == 28
    with pytest.raises(HarnessError, match=r"no variant 'x'; it has: full, knorm head 0\.5"):
        view.shown("x")


def test_rollouts_stand_together(tmp_path: Path) -> None:
    lines = [line for rollout in (1, 0) for line in lines_of(FULL, {"red": [10.0 * rollout]}, rollout=rollout)]
    view = sample_view(read(masks_of(write_run(tmp_path / "run", lines))), SAMPLE)
    assert view.control is not None
    assert (view.control.answers, view.control.score) == (("answer 0", "answer 10"), 5.0)


def test_a_variant_without_a_mask_is_shown_with_its_reason(folder: Path) -> None:
    masks_of(folder, "toy/red/64/0/1", variants=("full", "other"))
    shown = sample_view(read(folder), "toy/red/64/0/1").shown("knorm head 0.5")
    assert (shown.has_mask, shown.agrees, shown.lines[0].status, shown.answers) == (False, False, "oom", (None,))


def test_a_mask_that_is_not_the_lines_is_marked(tmp_path: Path) -> None:
    lines = lines_of(FULL, {"red": [1.0]}, kept_pairs=48) + lines_of(KNORM, {"red": [1.0]}, kept_pairs=24)
    view = sample_view(read(masks_of(write_run(tmp_path / "run", lines))), SAMPLE)
    assert [shown.agrees for shown in view.variants] == [True, False]


def test_what_cannot_be_shown_says_why(folder: Path) -> None:
    run = read(folder)
    with pytest.raises(HarnessError, match="no answers to a sample 'x'"):
        sample_view(run, "x")
    with pytest.raises(HarnessError, match=r"no masks of toy/red/64/0/0 are stored in run; .*--store-masks N"):
        sample_view(run, SAMPLE)
    path = mask_file.path_of(masks_of(folder), SAMPLE)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(HarnessError, match="cannot be read as stored masks"):
        sample_view(run, SAMPLE)
    assert len(samples_with_masks(run)) == 1  # the other views of the run go on
    other = mask_file.path_of(masks_of(folder, "toy/blue/64/0/0"), "toy/blue/64/0/0")
    other.replace(path)
    with pytest.raises(HarnessError, match="masks of another sample, toy/blue/64/0/0"):
        sample_view(run, SAMPLE)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"lengths": [1] * 8}, "--data"),
        ({}, "nor where their tokens end"),
        ({"lengths": [1] * 8, "cut": 3}, "left out"),
    ],
)
def test_missing_texts_say_why_and_how_they_can_be_seen(folder: Path, more: dict[str, Any], told: str) -> None:
    view = sample_view(read(masks_of(folder, **more)), SAMPLE)
    assert view.tokens is None
    assert told in view.tokens_note and "toy" in view.tokens_note
    assert view.share_by_token("full").tolist() == [1.0] * 8


@pytest.mark.parametrize(
    "row",
    [{}, {"references": 3, "question": ["x"]}, {"references": [1, None]}, {"references": {"a": 1}, "question": 7}],
)
def test_damaged_items_are_told_of(folder: Path, row: dict[str, Any]) -> None:
    (folder / "items.jsonl").write_text(json.dumps({"sample_id": SAMPLE, **row}) + "\n", encoding="utf-8")
    masks_of(folder, lengths=[1] * 8)
    with pytest.raises(HarnessError, match=r"items\.jsonl is damaged"):
        sample_view(read(folder), SAMPLE)


def test_split_puts_the_text_behind_the_template() -> None:
    assert split("abcd", [3, 2, 1, 2, 1], 2) == ("···", "··", "a", "bc", "d")
    assert split("abcd", [3, 3, 2, 1], 2) == ("···", "··a", "bc", "d")  # a token over the border
    assert split("  abcd \n", [3, 2, 1, 2, 1], 2) == ("···", "··", "a", "bc", "d")  # a template that trims
    assert split("abcd", [1, 1, 2], 0) == ("a", "b", "cd")
    assert split("abcd", [1, 1, 3], 0) is None
    assert split("abcd", [3, 2, 9], 2) is None
    assert split("", [2, 1], 2) == ("··", "·")
