"""``rescore``: scores anew from stored predictions, without a model; what is written, and what cannot be scored."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import benchmarks.registry
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text
from harness.evaluation.execute import alone
from harness.results.run_folder import RunFolder
from tests.harness.driving import COMMITTED, QUICK, Ran, Runs, contents
from tests.harness.made_runs import edit_json
from tests.harness.toys import Toy, checksum, toy_sample

pytestmark = pytest.mark.usefixtures("toys")
Cli = Callable[..., Ran]


@pytest.fixture
def done(runs: Runs, unloaded: Callable[[], None]) -> Runs:
    """A run of the toy benchmark; from here on no model may be loaded."""
    assert runs(*QUICK).code == 0
    unloaded()
    return runs


@pytest.fixture
def rescored(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def change(score: Callable[[Sample, str], Score]) -> None:
        monkeypatch.setattr(Toy, "score", lambda self, sample, prediction: score(sample, prediction))

    return change


def halved(sample: Sample, prediction: str) -> Score:
    return Score(checksum(prediction) / 2, {"letters": float(len(prediction))})


def test_scores_that_are_right_stay(cli: Cli, done: Runs) -> None:
    before = contents(done.folder)
    for flags in ((), ("--check",)):
        ran = cli("rescore", done.folder, *flags)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == f"{done.folder.name}: {len(done.rows())} answers scored, 0 changed\n"
        assert contents(done.folder) == before


def test_a_changed_scorer_is_found_and_written(cli: Cli, done: Runs, rescored: Callable[..., None]) -> None:
    before, old = contents(done.folder), done.rows()
    rescored(halved)
    count = sum(row["score"] != 0 for row in old)
    assert count > 3
    ran = cli("rescore", done.out, "--check")
    assert (ran.code, contents(done.folder)) == (1, before)
    assert f"{len(old)} answers scored, {count} changed; not written (--check)" in ran.out
    first = next(row for row in old if row["score"])
    assert f"  {first['sample_id']}, {first['variant']}: {first['score']:g} -> {first['score'] / 2:g}" in ran.out
    ran = cli("rescore", done.out)
    assert (ran.code, f"{count} changed; written" in ran.out) == (0, True)
    assert done.rows() == [{**row, "score": row["score"] / 2} for row in old]
    assert {name for name, data in contents(done.folder).items() if data != before[name]} == {
        "samples.jsonl",
        "summary.json",
    }
    cells = {(c["variant"], c["subset"]): c for c in done.json("summary.json")["cells"]}
    scores = [row["score"] / 2 for row in old if (row["variant"], row["subset"]) == ("full", "red")]
    assert cells["full", "red"]["score"] == sum(scores) / len(scores)
    ran = cli("rescore", done.out, "--check")
    assert (ran.code, "0 changed" in ran.out) == (0, True)


def test_there_and_back_gives_the_same_files(
    cli: Cli, done: Runs, rescored: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(done.folder)
    with monkeypatch.context() as patch:
        patch.setattr(Toy, "score", lambda self, sample, prediction: halved(sample, prediction))
        assert cli("rescore", done.folder).code == 0
        assert contents(done.folder) != before
    assert cli("rescore", done.folder).code == 0
    assert contents(done.folder) == before


def test_a_summary_that_is_missing_is_made_again(cli: Cli, done: Runs) -> None:
    before = contents(done.folder)
    (done.folder / "summary.json").unlink()
    assert cli("rescore", done.folder).code == 0
    assert contents(done.folder) == before


def test_metrics_alone_can_change(cli: Cli, done: Runs, rescored: Callable[..., None]) -> None:
    rescored(lambda sample, prediction: Score(checksum(prediction), {"more": 1.0}))
    ran = cli("rescore", done.folder)
    assert "metrics alone" in ran.out
    assert {json.dumps(row["metrics"]) for row in done.rows()} == {'{"more": 1.0}'}


def test_packed_samples_stay_packed(cli: Cli, done: Runs, rescored: Callable[..., None]) -> None:
    path, old = done.folder / "samples.jsonl", done.rows()
    (done.folder / "samples.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    rescored(halved)
    assert cli("rescore", done.folder).code == 0
    assert not path.exists()
    assert [line.score for line in RunFolder(done.folder).lines()] == [row["score"] / 2 for row in old]


def test_lines_without_an_answer_stay_as_they_are(cli: Cli, runs: Runs, rescored: Callable[..., None]) -> None:
    assert runs("--benchmark", "toy", "--method", "broken,knorm", "--removed", "0.5", "--limit", "1").code == 0
    failed = [row for row in runs.rows() if row["status"] == "error"]
    rescored(halved)
    ran = cli("rescore", runs.folder)
    assert f"{len(runs.rows()) - len(failed)} answers scored" in ran.out
    assert [row for row in runs.rows() if row["status"] == "error"] == failed


def test_only_what_follows_a_thought_is_scored(cli: Cli, done: Runs, rescored: Callable[..., None]) -> None:
    path = done.folder / "samples.jsonl"
    rows = [{**row, "thinking": True, "prediction": "<think>left</think>right"} for row in done.rows()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert cli("rescore", done.folder).code == 0
    assert {row["score"] for row in done.rows()} == {checksum("right")}


def test_another_version_of_the_benchmark_is_said(cli: Cli, done: Runs) -> None:
    edit_json(done.folder / "run.json", benchmark_versions={"toy": "6"})
    assert "note: toy was version 6, now 7" in cli("rescore", done.folder, "--check").out


@pytest.mark.parametrize("left", [0, 1, -1])
def test_a_run_that_lost_lines_is_refused_and_stays_as_it_is(cli: Cli, done: Runs, left: int) -> None:
    path = done.folder / "samples.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    before = contents(done.folder)
    for more in ((), ("--check",)):
        ran = cli("rescore", done.folder, *more)
        assert ran.code == 2 and "lines that the run had when it was summarised" in ran.err
    assert contents(done.folder) == before


def test_the_committed_run_has_the_scores_that_it_says(cli: Cli) -> None:
    before = contents(COMMITTED)
    answers = len(RunFolder(COMMITTED).lines())
    ran = cli("rescore", COMMITTED, "--check")
    assert answers >= 580
    assert (ran.code, ran.out) == (0, f"{COMMITTED.name}: {answers:,} answers scored, 0 changed\n")
    assert contents(COMMITTED) == before


def reads_context(sample: Sample, prediction: str) -> Score:
    return Score(100.0 * (sample.context[:1] in prediction))


def test_texts_that_a_run_does_not_hold_cannot_be_scored_by_mistake(
    cli: Cli, done: Runs, rescored: Callable[..., None]
) -> None:
    before = contents(done.folder)
    rescored(reads_context)
    ran = cli("rescore", done.folder)
    assert (ran.code, ran.out) == (2, "")
    assert "needs its context, which the run does not hold; give the benchmark's rows with --data" in ran.err
    assert contents(done.folder) == before


class FromRows(Toy):
    """The toy benchmark whose samples come from a file of numbers."""

    def samples(self, request: Request, text: Text) -> list[Sample]:
        if request.data is None:
            return super().samples(request, text)
        numbers = [int(row) for row in request.data.read_text("utf-8").split()]
        return [toy_sample(s, request.lengths[0], i, request.seed) for s in ("red", "blue") for i in numbers]


@pytest.mark.parametrize(
    ("rows", "message"), [("0 1 2", ""), ("0", "has no toy/red/64/0/1"), (None, "give the benchmark's rows")]
)
def test_data_gives_the_texts_and_must_be_the_runs_own(
    cli: Cli, done: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str | None, message: str
) -> None:
    monkeypatch.setattr(FromRows, "score", lambda self, sample, prediction: reads_context(sample, prediction))
    monkeypatch.setitem(benchmarks.registry._classes, "toy", FromRows)
    data = tmp_path / "rows.txt"
    data.write_text(rows or "", encoding="utf-8")
    ran = cli("rescore", done.folder, *(("--data", data) if rows else ()))
    assert (ran.code, message in ran.err) == (2 if message else 0, True)
    if not message:
        first = {f"toy/{s}/64/0/{i}": toy_sample(s, 64, i).context[:1] for s in ("red", "blue") for i in range(2)}
        assert [row["score"] for row in done.rows()] == [
            100.0 * (first[row["sample_id"]] in row["prediction"]) for row in done.rows()
        ]


def test_data_with_another_prompt_is_refused(
    cli: Cli, done: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changed(FromRows):
        def samples(self, request: Request, text: Text) -> list[Sample]:
            found = super().samples(request, text)
            return [Sample.from_json({**sample.to_json(), "context": "another"}) for sample in found]

    monkeypatch.setitem(benchmarks.registry._classes, "toy", Changed)
    data = tmp_path / "rows.txt"
    data.write_text("0 1", encoding="utf-8")
    ran = cli("rescore", done.folder, "--data", data)
    assert (ran.code, "has another prompt for toy/" in ran.err) == (2, True)


def test_a_benchmark_that_compares_distributions_keeps_its_scores(
    cli: Cli, done: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forced(Toy):
        teacher_forced: ClassVar[str] = "answer"

        def score(self, sample: Sample, prediction: str) -> Score:
            raise BenchmarkError("not from a text")

    monkeypatch.setitem(benchmarks.registry._classes, "toy", Forced)
    before = contents(done.folder)
    ran = cli("rescore", done.folder)
    assert (ran.code, "0 answers scored" in ran.out) == (0, True)
    assert "note: toy compares distributions" in ran.out
    assert contents(done.folder) == before


def test_a_fault_in_one_run_leaves_all_as_they_were(cli: Cli, done: Runs, rescored: Callable[..., None]) -> None:
    run = done.folder
    other = done.out / "zz"
    other.mkdir()
    for name, data in contents(run).items():
        (other / name).write_bytes(data)
    items = (other / "items.jsonl").read_text("utf-8").splitlines(keepends=True)
    (other / "items.jsonl").write_text("".join(items[1:]), encoding="utf-8")
    before = contents(run)
    rescored(halved)
    ran = cli("rescore", done.out)
    assert (ran.code, "lacks toy/" in ran.err) == (2, True)
    assert contents(run) == before


def test_a_run_at_work_is_left_alone(cli: Cli, done: Runs, rescored: Callable[..., None]) -> None:
    rescored(halved)
    with alone(RunFolder(done.folder)):
        ran = cli("rescore", done.folder)
    assert (ran.code, "another process is writing to" in ran.err) == (2, True)


def test_an_unknown_benchmark_is_named(cli: Cli, done: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, type[Benchmark]] = {k: v for k, v in benchmarks.registry._classes.items() if k != "toy"}
    monkeypatch.setattr(benchmarks.registry, "_classes", known)
    ran = cli("rescore", done.folder)
    assert (ran.code, "unknown benchmark 'toy'" in ran.err) == (2, True)


def test_a_folder_that_holds_no_run_is_refused(cli: Cli, tmp_path: Path) -> None:
    ran: Any = cli("rescore", tmp_path)
    assert (ran.code, "nothing to read" in ran.err) == (2, True)
