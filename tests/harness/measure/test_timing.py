"""Timing of a sweep: both ways give the same tokens, and the figures are written. No time is tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.measure import timing
from harness.measure.timing import Sweep
from harness.models import loading
from tests.harness.driving import Ran
from tests.harness.toys import Toy

METHODS = ("random", "knorm", "streaming_llm", "kvzip", "kvzip_plus")


@pytest.fixture(scope="module")
def bench(model_folder: Path) -> Sweep:
    return Sweep(str(model_folder), METHODS, "cpu", "float64")


def test_the_grid_is_all_methods_at_four_levels(bench: Sweep) -> None:
    labels = [planned.variant.label for planned in bench.plan.planned]
    assert len(labels) == len(set(labels)) == 1 + 4 * len(METHODS)
    assert {"knorm head 0.875", "kvzip global 0.25"} <= set(labels)


def test_a_random_prompt_has_the_lengths_asked_for(bench: Sweep) -> None:
    known = len(bench.prompts.tokenizer)
    for length in (8, 90):
        prompt = bench.random_prompt(length, 5, 3)
        assert (len(prompt.context.ids), len(prompt.question.ids), prompt.question.max_new_tokens) == (length, 5, 3)
        assert all(0 <= token < known for token in (*prompt.context.ids, *prompt.question.ids))
        assert prompt.question.stop_ids == frozenset()
        assert bench.random_prompt(length, 5, 3).context.ids == prompt.context.ids


def test_shared_and_single_runs_give_the_same_tokens(bench: Sweep) -> None:
    prompt = bench.random_prompt(70, 4, 6)
    shared, single = bench.shared(prompt), bench.single(prompt)
    assert shared.tokens == single.tokens
    assert {len(tokens) for tokens in shared.tokens} == {6}
    assert len(set(shared.tokens)) > 3


def test_a_single_run_has_a_prefill_for_each_variant(bench: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = timing.prune

    def counting(lm: object, planned: list[object], context: object) -> object:
        calls.append(len(planned))
        return real(lm, planned, context)  # type: ignore[arg-type]

    monkeypatch.setattr(timing, "prune", counting)
    prompt = bench.random_prompt(20, 3, 1)
    bench.shared(prompt)
    bench.single(prompt)
    assert calls == [21, *[1] * 21]


def test_sweep_writes_its_figures(cli: Callable[..., Ran], model_folder: Path, tmp_path: Path) -> None:
    where = tmp_path / "sweep.json"
    lengths = ("--length", "24,40", "--question-tokens", "3", "--new-tokens", "1,2", "--method", "knorm,random")
    done = cli("profile", "sweep", *lengths, "--model", model_folder, "--json", where)
    assert (done.code, "9 of 9" in done.out) == (0, True)
    found = json.loads(where.read_text("utf-8"))
    assert {"kind", "model", "labels", "dtype", "hardware", "versions", "rows"} <= set(found)
    assert [(row["length"], row["new_tokens"]) for row in found["rows"]] == [(24, 1), (24, 2), (40, 1), (40, 2)]
    for row in found["rows"]:
        assert (row["question_tokens"], row["variants"], row["same_tokens"], row["repeat"]) == (3, 9, 9, 1)
        assert row["shared_seconds"] >= 0
        assert {"single_seconds", "ratio"} <= set(row)
    assert len(found["labels"]) == 9


def test_samples_are_timed_and_kept_with_their_answers(
    cli: Callable[..., Ran], model_folder: Path, tmp_path: Path, toys: None
) -> None:
    where = tmp_path / "samples.json"
    flags = ("--benchmark", "toy", "--length", "30", "--limit", "1", "--method", "knorm,kvzip")
    assert cli("profile", "samples", *flags, "--model", model_folder, "--json", where).code == 0
    found = json.loads(where.read_text("utf-8"))
    assert [row["sample_id"] for row in found["rows"]] == ["toy/red/30/0/0", "toy/blue/30/0/0"]
    assert [len(own) for own in found["predictions"]] == [len(found["labels"])] * 2 == [9, 9]
    assert found["scores"][0] == [Toy().score(None, text).score for text in found["predictions"][0]]  # type: ignore[arg-type]
    assert (found["benchmark"], found["length"], len(found["seconds"])) == ("toy", 30, 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--length", "0"), "--length must be a whole number from 1"),
        (("--length", "1"), "--length must be at least 2, the tokens of the chat template, got 1"),
        (("--length", "4096"), "it has 512 positions, --length asks for 4096"),
        (("--length", "500"), "needs 534 positions"),
        (("--new-tokens", "none"), "--new-tokens must be a whole number from 1"),
        (("--method", "knrm"), "unknown method 'knrm'"),
        (("--model", "no/such"), "model 'no/such'"),
        (("--json", "/dev/null/x.json"), "--json /dev/null/x.json cannot be written"),
        (("--json", "/"), "--json / cannot be written"),
    ],
)
def test_bad_input_gets_one_message(
    cli: Callable[..., Ran], model_folder: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(Sweep, "shared", None)  # nothing is timed first
    model = () if "--model" in flags else ("--model", model_folder)
    method = () if "--method" in flags else ("--method", "knorm")
    new = () if "--new-tokens" in flags else ("--new-tokens", "2")
    done = cli("profile", "sweep", *model, *method, *new, *flags)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert message in done.err


def test_no_model_is_loaded_for_a_method_that_is_not_there(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load", None)
    with pytest.raises(ValueError, match="unknown method"):
        Sweep(str(model_folder), ["nothing"])
