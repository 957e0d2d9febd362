"""Predictions of another program, scored on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.driving import Ran, Runs

Cli = Callable[..., Ran]
ROWS: dict[str, list[dict[str, Any]]] = {
    "hotpotqa": [{"pred": "Bob", "answers": ["Bob Dylan", "Bob"]}, {"pred": "Eve", "answers": ["Bob"]}],
    "trec": [{"pred": "Date\nCity", "answers": ["Date"], "all_classes": ["Date", "City"]}],
    "lcc": [{"pred": "x = 1", "answers": ["x = 2"]}],
}


def write(folder: Path, rows: dict[str, list[dict[str, Any]]] = ROWS, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for subset, some in rows.items():
        full = ({"all_classes": None, "length": 5000, **row, **changes} for row in some)
        (folder / f"{subset}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in full), "utf-8")
    return folder


def test_a_figure_a_subset_and_the_averages(cli: Cli, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    folder = write(tmp_path / "some-model")
    done = cli("score", "--benchmark", "longbench", "--predictions", folder, "--json", figures)
    assert done.code == 0
    found = json.loads(figures.read_text("utf-8"))
    assert found["subsets"] == {
        "hotpotqa": {"score": 50.0, "n": 2},
        "trec": {"score": 100.0, "n": 1},
        "lcc": {"score": 80.0, "n": 1},
    }
    assert found["score"] == pytest.approx(230 / 3)
    assert found["groups"]["without_trec"] == {"score": 65.0, "n": 3, "n_subsets": 2, "of_subsets": 20}
    assert (found["n_subsets"], found["of_subsets"], found["predictions"]) == (3, 21, "some-model")
    rows = [line.split() for line in done.out.replace("│", " ").splitlines()]
    assert ["hotpotqa", "50.00", "2"] in rows and ["lcc", "80.00", "1"] in rows
    assert ["without_trec", "(2", "of", "20)", "65.00", "3"] in rows and [
        "all",
        "(3",
        "of",
        "21)",
        "76.67",
        "4",
    ] in rows


def test_longbench_e_by_length(cli: Cli, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    folder = write(tmp_path / "model", {"lcc": ROWS["lcc"], "trec_e": ROWS["trec"], "narrativeqa": [{"no": 1}]})
    assert cli("score", "--benchmark", "longbench_e", "--predictions", folder, "--json", figures).code == 0
    found = json.loads(figures.read_text("utf-8"))
    assert set(found["subsets"]) == {"lcc:4-8k", "trec:4-8k"}
    assert found["groups"]["4-8k"]["score"] == 90


def test_mistakes(cli: Cli, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")

    def told(message: str, *args: object) -> None:
        done = cli("score", *args)
        assert (done.code, "Traceback" in done.err) == (2, False)
        assert message in done.err.replace("\n", " ")

    told("none does not exist", "--benchmark", "longbench", "--predictions", tmp_path / "none")
    able = "benchmarks that have one, nearest first: longbench, longbench_e"
    told(f"unknown benchmark 'longbenhc'; {able}", "--benchmark", "longbenhc", "--predictions", folder)
    able = "benchmarks that have one, nearest first: longbench_e, longbench"
    told(f"unknown benchmark 'longbenhc_e'; {able}", "--benchmark", "longbenhc_e", "--predictions", folder)
    told(
        "needles has no format for prediction files; benchmarks that have",
        "--benchmark",
        "needles",
        "--predictions",
        folder,
    )
    told("needles takes nothing after its name", "--benchmark", "needles:x", "--predictions", folder)
    nowhere = tmp_path / "no" / "x.json"
    told("cannot be written", "--benchmark", "longbench", "--predictions", folder, "--json", nowhere)
    write(folder, pred=None)
    told("line 1: pred must be a text, got null", "--benchmark", "longbench", "--predictions", folder)
    write(folder, {name: [] for name in ROWS})
    told("has no predictions", "--benchmark", "longbench", "--predictions", folder)


def test_a_run_on_local_rows_keeps_their_texts_to_itself(runs: Runs, tmp_path: Path) -> None:
    data = tmp_path / "rows"
    words = "The rain has stopped. "
    for subset in ("multifieldqa_en", "lcc"):
        rows = [{"input": "Who?", "context": words * n, "answers": ["secret"]} for n in (2, 150)]
        write(data, {subset: rows})
    done = runs("--benchmark", "longbench", "--data", data, "--method", "knorm", "--removed", "0.5")
    assert done.code == 0
    cut = {row["sample_id"].split("-")[0]: row["prompt_cut"] for row in runs.rows()}
    assert cut == {"longbench/multifieldqa_en/0": False, "longbench/multifieldqa_en/1": True} | {
        "longbench/lcc/0": False,
        "longbench/lcc/1": True,
    }
    assert {row["status"] for row in runs.rows()} == {"ok"}
    for item in runs.rows("items.jsonl"):
        assert not {"references", "all_classes", "context", "question"} & set(item) and item["prompt_hash"]
    assert "secret" not in (runs.folder / "items.jsonl").read_text("utf-8")
    assert "prompts were cut in the middle" in done.out and "mean of 2 of 21" in done.out and "without_trec" in done.out
