"""Runs from request to files: folders, what is in them, and what a second start does."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.base import BenchmarkError
from harness.config.run_config import RunConfig
from harness.errors import HarnessError
from harness.evaluation import job
from harness.evaluation.evaluator import Evaluator
from tests.harness.driving import QUICK, Runs, contents
from tests.harness.toys import Toy

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def named(model_folder: Path) -> Callable[..., Path]:
    """The folder of a run, by its flags, without running it."""

    def folder_of(**flags: Any) -> Path:
        plain = {
            "benchmark": "toy",
            "method": "knorm,carded",
            "removed": "0.5",
            "limit": "2",
            "model": str(model_folder),
        }
        return job.resolve(RunConfig(**{**plain, **flags})).folder.path

    return folder_of


def test_a_run_writes_its_files_and_prints_what_report_prints(runs: Runs) -> None:
    done = runs(*QUICK)
    assert (done.code, [path.name for path in sorted(runs.folder.iterdir())]) == (
        0,
        ["histograms.jsonl", "items.jsonl", "run.json", "samples.jsonl", "summary.json"],
    )
    assert runs.folder.name.startswith("tiny-llama-toy-")
    for text in ("knorm head 0.5", "mean of 2 of 3", f"{runs.folder}"):
        assert text in done.out
    assert re.search(r"carded threshold tau=-2 +│ +0\.5 ", done.out)  # its requested fraction
    assert done.out.startswith(runs.cli("report", runs.folder).out)
    assert "error" not in done.err


def test_lines_and_items_cover_samples_times_variants(runs: Runs) -> None:
    runs(*QUICK)
    rows = runs.rows()
    assert len(rows) == len({(row["sample_id"], row["variant"]) for row in rows}) == 4 * 3
    assert {row["sample_id"] for row in runs.rows("items.jsonl")} == {row["sample_id"] for row in rows}
    asked = {row["requested_removed"] for row in rows if row["method"] == "carded"}
    assert asked == {0.5}
    assert len({(row["sample_id"], row["method"]) for row in runs.rows("histograms.jsonl")}) == 2


def test_the_summary_is_made_of_the_lines(runs: Runs) -> None:
    runs(*QUICK)
    rows = [row for row in runs.rows() if row["method"] == "knorm"]
    (cell,) = [c for c in runs.json("summary.json")["cells"] if (c["method"], c["subset"]) == ("knorm", None)]
    assert cell["score"] == pytest.approx(sum(row["score"] for row in rows) / 4)
    assert (cell["n"], cell["n_subsets"], cell["of_subsets"]) == (4, 2, 3)
    assert cell["removed_mean"] == pytest.approx(sum(row["removed_context"] for row in rows) / 4)
    assert runs.json("summary.json")["complete"] is True


def test_run_json_says_what_was_run_where_and_by_which_code(runs: Runs) -> None:
    runs(*QUICK, "--seed", 3)
    record = runs.json("run.json")
    assert record["schema_version"] == 1
    configuration = record["configuration"]
    assert [variant["method"] for variant in configuration["variants"]] == ["full", "knorm", "carded"]
    assert (configuration["seed"], configuration["device"], configuration["dtype"]) == (3, "cpu", "float32")
    assert (configuration["lengths"], configuration["subsets"]) == ([64], ["red", "blue"])
    assert set(record["method_hashes"]) == {"full", "knorm", "carded"}
    assert record["benchmark_versions"] == {"toy": "7"}
    assert {"torch", "transformers", "python"} <= set(record["versions"])
    assert {"commit", "dirty", "hardware", "attention_kernel"} <= set(record)


def test_no_file_holds_a_path_of_this_machine(runs: Runs) -> None:
    runs("--benchmark", "toy", "--method", "all", "--removed", "0.5", "--length", "64,600", "--limit", 1)
    assert "kvzap_mlp" in runs.json("run.json")["skipped"]  # whose reason names the model
    assert "truncated" in {row["status"] for row in runs.rows()}  # whose reason did too
    for name, data in contents(runs.folder).items():
        assert str(runs.model.parent).encode() not in data, name


def test_references_and_contexts_are_written_only_where_they_may_be(runs: Runs) -> None:
    runs(*QUICK)
    assert all("context" not in row and row["references"] for row in runs.rows("items.jsonl"))
    shutil.rmtree(runs.folder)
    done = runs("--method", "full", "--length", 256, "--subset", "keys_1", "--limit", 1)
    assert done.code == 0
    (row,) = runs.rows("items.jsonl")
    assert row["references"][0] in row["context"]
    assert runs.rows()[0]["context_tokens"] < 256


def test_run_json_comes_before_the_first_sample(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = Evaluator.run

    def watching(self: Evaluator, *args: Any) -> Any:
        seen.append(contents(runs.folder))
        return real(self, *args)

    monkeypatch.setattr(Evaluator, "run", watching)
    runs(*QUICK)
    assert json.loads(seen[0]["run.json"]) == runs.json("run.json")
    assert (seen[0]["samples.jsonl"], "summary.json" in seen[0]) == (b"", False)


def test_another_configuration_has_another_folder(named: Callable[..., Path]) -> None:
    others = [
        {"removed": "0.75"},
        {"seed": "1"},
        {"limit": "1"},
        {"length": "48"},
        {"subset": "red"},
        {"dtype": "float64"},
        {"window": "3"},
        {"method": "carded,knorm"},
        {"query_aware": True},
        {"benchmark": "toy,needles", "length": "256", "subset": "red,keys_1"},
    ]
    found = {named(), *(named(**other) for other in others)}
    assert len(found) == 1 + len(others)


def test_the_same_configuration_said_otherwise_has_the_same_folder(named: Callable[..., Path]) -> None:
    same = [
        {"seed": "0"},
        {"length": "64"},
        {"subset": "blue,red"},
        {"dtype": "float32"},
        {"device": "cpu"},
        {"removed": "0.50"},
        {"method": "full,knorm,carded,knorm"},
        {"phase": "prefill"},
    ]
    assert {named(**other) for other in same} == {named()}


def test_another_model_of_the_same_name_has_another_folder(runs: Runs, tmp_path: Path) -> None:
    runs(*QUICK)
    other = tmp_path / "elsewhere" / runs.model.name
    shutil.copytree(runs.model, other)
    assert runs(*QUICK, "--model", other).out.count("was complete already") == 1  # the same files are the same model
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(bytes(data))
    assert runs(*QUICK, "--model", other).code == 0
    assert len(runs.folders) == 2


def test_a_model_named_by_a_dot_is_called_by_its_folder(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs.model)
    assert runs(*QUICK, "--model", ".").code == 0
    assert runs.folder.name.startswith("tiny-llama-toy-")


def test_samples_that_do_not_fit_are_truncated_lines(runs: Runs) -> None:
    done = runs(*QUICK, "--length", "64,600")
    assert done.code == 0
    statuses = {(row["length"], row["status"]) for row in runs.rows()}
    assert statuses == {(64, "ok"), (600, "truncated")}
    assert "4 not run" in done.out


@pytest.mark.parametrize("length", ["600", "600,2000", "999999999999"])
def test_a_run_none_of_whose_samples_fits_is_refused(runs: Runs, unloaded: Callable[[], None], length: str) -> None:
    unloaded()
    refused = runs(*QUICK, "--length", length)
    assert (refused.code, refused.err.startswith("error: no sample fits model")) == (2, True)
    assert runs.folders == []


def test_rows_of_another_length_than_their_name_says(
    named: Callable[..., Path], unloaded: Callable[[], None], tmp_path: Path
) -> None:
    row = {"context": "w " * 50, "question": "?", "answer_prefix": "", "answer": "a", "task": "vt", "max_new_tokens": 3}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(BenchmarkError, match="ruler-16k has 16,384 tokens, but ruler-16k/vt/data/0-"):
        named(benchmark="ruler-16k", data=str(tmp_path / "rows.jsonl"), method="knorm")


def test_a_name_for_several_subsets_takes_them_all(named: Callable[..., Path]) -> None:
    needles = {"benchmark": "needles", "length": "320", "limit": "1", "method": "knorm"}
    assert named(**needles, subset="keys") == named(**needles, subset="keys_1,keys_2,keys_4,keys_8") == named(**needles)
    with pytest.raises(HarnessError, match="unknown subset 'keys_12'"):
        named(**needles, subset="keys_12")


def test_a_threshold_of_minus_infinity_is_written_and_read_again(runs: Runs, unloaded: Callable[[], None]) -> None:
    flags = (*QUICK[:2], "--method", "carded", "--threshold=-inf,inf", "--limit", "2")
    assert runs(*flags).code == 0
    levels = {(row["level"], row["removed_context"] == 0) for row in runs.rows() if row["method"] == "carded"}
    assert levels == {("-inf", True), ("inf", False)}
    unloaded()
    assert runs(*flags).code == 0


def test_names_with_brackets_are_printed_as_they_are(runs: Runs, tmp_path: Path) -> None:
    odd = tmp_path / "tiny [b] [" / "x[red]ü"
    shutil.copytree(runs.model, odd)
    done = runs(*QUICK, "--model", odd, "--out", tmp_path / "out [i]")
    assert (done.code, "x[red]ü, toy" in done.out, "out [i]" in done.out) == (0, True, True)


def test_what_a_benchmark_says_of_a_request_stands_under_the_table(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "notes", lambda self, asked: () if asked.subsets else ("hidden [was] not run",))
    assert "hidden [was] not run\n" in runs(*QUICK).out
    assert "not run" not in runs(*QUICK, "--subset", "red").out


def test_a_folder_of_texts_is_sampled_like_no_data_at_all(tmp_path: Path) -> None:
    """The embedded model gets few samples of them; finished rows in a file are all taken."""
    (tmp_path / "rows.jsonl").touch()
    for data, limit in ((None, job.EMBEDDED_LIMIT), (tmp_path, job.EMBEDDED_LIMIT), (tmp_path / "rows.jsonl", None)):
        asked = RunConfig(benchmark=("toy",), data=data)
        assert job._request_for(Toy(), asked, [Toy()]).limit == limit
