"""``compare``: two variants, two runs, all pairs of a run; the samples that differ; what cannot be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.driving import COMMITTED, Ran, contents
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, RANDOM, both, edit_json, lines_of, write_run

Cli = Callable[..., Ran]
#: one sample of red and two of blue lost
LOSSES = {"red": [0.0, *[95.0] * 11], "blue": [95.0] * 10 + [45.0, 0.0]}
LINES = [*lines_of(FULL, both(95)), *lines_of(KNORM, LOSSES), *lines_of(KEYDIFF, both(60))]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "first", LINES)


def table(text: str, title: str) -> list[list[str]]:
    """Rows of the table under a title, the header first."""
    after = text.split(f"\n{title}", 1)[1].splitlines()[1:]
    found = []
    for line in after:
        if line[:1] not in "┏┃┡│├└":
            break
        if line[0] in "┃│":
            found.append([cell.strip() for cell in re.split("[┃│]", line)[1:-1]])
    return found


def test_two_variants_of_a_run_and_the_samples_that_differ(cli: Cli, run: Path) -> None:
    done = cli("compare", run, KNORM.label, "full")
    assert (done.code, done.err) == (0, "")
    _, row = table(done.out, "Paired differences")
    mean = -(95 / 12 + 145 / 12) / 2
    assert row[:3] == [KNORM.label, "full", f"{mean:+.1f}"]
    assert row[4:7] == ["0", "3", "24"]
    assert row[-1] == "tie"
    assert table(done.out, "By subset")[1:] == [
        ["red", f"{95 - 95 / 12:.1f}", "95.0", f"{-95 / 12:+.1f}", "12"],
        ["blue", f"{95 - 145 / 12:.1f}", "95.0", f"{-145 / 12:+.1f}", "12"],
    ]
    assert table(done.out, "Samples with different scores: 3")[1:] == [
        ["toy/red/64/0/0", "0", "95", "right toy/red/64/0/0", "answer 0", "answer 95"],
        ["toy/blue/64/0/10", "45", "95", "right toy/blue/64/0/10", "answer 45", "answer 95"],
        ["toy/blue/64/0/11", "0", "95", "right toy/blue/64/0/11", "answer 0", "answer 95"],
    ]


def test_no_more_samples_are_listed_than_asked_for(cli: Cli, run: Path) -> None:
    out = cli("compare", run, KNORM.label, "full", "--samples", "1").out
    assert len(table(out, "Samples with different scores: 3, the first 1")) == 2


def test_two_runs_are_compared_on_the_variants_of_both(cli: Cli, run: Path, tmp_path: Path) -> None:
    lines = [*lines_of(FULL, both(95)), *lines_of(KNORM, both(95)), *lines_of(RANDOM, both(20))]
    other = write_run(tmp_path / "second", lines, dtype="bfloat16")
    out = cli("compare", run, other).out
    assert [row[:3] for row in table(out, "Paired differences")[1:]] == [
        ["full", "full", "+0.0"],
        [KNORM.label, KNORM.label, "-10.0"],
    ]
    assert "dtype: a float32, b bfloat16" in out
    assert [row[:4] for row in table(out, "Samples with different scores: 3")[1:]] == [
        ["toy/red/64/0/0", KNORM.label, "0", "95"],
        ["toy/blue/64/0/10", KNORM.label, "45", "95"],
        ["toy/blue/64/0/11", KNORM.label, "0", "95"],
    ]


def test_a_run_compared_with_itself_has_no_differences(cli: Cli, run: Path) -> None:
    out = cli("compare", run, run).out
    assert "note: no sample has different scores" in out
    assert "dtype" not in out


def test_answers_that_differ_in_their_text_alone_are_counted(cli: Cli, run: Path, tmp_path: Path) -> None:
    lines = [ln.model_copy(update={"prediction": "other"}) if ln.variant == "full" else ln for ln in LINES]
    assert "24 more answers differ in their text alone" in cli("compare", run, write_run(tmp_path / "b", lines)).out


def test_variants_of_two_runs(cli: Cli, run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "second", [*lines_of(FULL, both(95)), *lines_of(RANDOM, both(20))])
    out = cli("compare", run, KEYDIFF.label, other, RANDOM.label).out
    assert table(out, "Paired differences")[1][:3] == [KEYDIFF.label, RANDOM.label, "+40.0"]


def test_samples_with_another_prompt_are_left_out(cli: Cli, run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "second", LINES)
    rows = [json.loads(row) for row in (other / "items.jsonl").read_text("utf-8").splitlines()]
    rows[0]["prompt_hash"] = "0" * 16
    (other / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = cli("compare", run, KNORM.label, other, "full").out
    assert "note: 1 samples have the same name but another prompt in b, and are left out" in out
    assert table(out, "Paired differences")[1][6] == "23"


def test_of_rollouts_the_first_that_differs_is_shown(cli: Cli, tmp_path: Path) -> None:
    lines = [
        *(ln for i in range(2) for ln in lines_of(FULL, both(100, 10), rollout=i)),
        *lines_of(KNORM, both(100, 10), rollout=0),
        *lines_of(KNORM, {"red": [0.0, *[100.0] * 9], "blue": [100.0] * 10}, rollout=1),
    ]
    out = cli("compare", write_run(tmp_path / "drawn", lines), KNORM.label, "full").out
    assert table(out, "Samples with different scores: 1")[1] == [
        "toy/red/64/0/0",
        "50",
        "100",
        "right toy/red/64/0/0",
        "answer 0",
        "answer 100",
    ]


def test_one_run_gives_all_its_pairs(cli: Cli, run: Path) -> None:
    out = cli("compare", run).out
    assert [row[0] for row in table(out, "Paired differences from the control")[1:]] == [KNORM.label, KEYDIFF.label]
    assert [row[:2] for row in table(out, "Paired differences at removed 0.5")[1:]] == [[KNORM.label, KEYDIFF.label]]


def test_the_committed_run_against_its_readme(cli: Cli) -> None:
    before = contents(COMMITTED)
    out = cli("compare", COMMITTED, "kvzap_mlp threshold tau=-1.16", "knorm head 0.875").out
    row = table(out, "Paired differences")[1]
    assert (row[2], row[4:7], row[7]) == ("+65.0", ["14", "1", "20"], "mcnemar")  # 80 - 15
    assert len(table(out, "Samples with different scores: 15")) == 16
    assert contents(COMMITTED) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("{run}", "knorm", "full"), "first has no variant 'knorm'; it has, nearest first: 'knorm head 0.5', "),
        (("{run}", "knorm head 0.5"), "'knorm head 0.5' is not a run folder; give RUN, RUN_A RUN_B"),
        (("{run}/nowhere",), "is not a folder; give a run folder"),
        (("{parent}",), "has no run.json; give one of the run folders in it: first"),
        (("{run}", "a", "b", "c", "d"), "compare takes one to four arguments, got 5"),
        (("{run}", "{other}"), "nothing to compare: no benchmark and length with a variant in common"),
    ],
)
def test_what_cannot_be_compared_says_what_can(cli: Cli, run: Path, tmp_path: Path, args: Any, message: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = write_run(tmp_path / "elsewhere" / "other", lines_of(RANDOM, both(20)))
    done = cli("compare", *(arg.format(run=run, parent=tmp_path, other=other) for arg in args))
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_newer_schema_is_refused(cli: Cli, run: Path) -> None:
    edit_json(run / "run.json", schema_version=2)
    done = cli("compare", run)
    assert (done.code, "has schema_version 2; this release reads 1" in done.err) == (2, True)
