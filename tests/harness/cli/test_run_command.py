"""The command line: its tables, and what bad input gets. A mistake is one message, exit code 2, and no run folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from harness.models import loading
from tests.harness.driving import Ran, Runs

TOY = ("--benchmark", "toy", "--limit", "1", "--subset", "red")
pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs with bad flags; gives the message after the checks that hold for all."""

    def call(*args: object, loads: bool = False) -> str:
        if not loads:
            monkeypatch.setattr(loading, "load_model", None)  # any use of it is a traceback
        done = runs(*args)
        assert (done.code, done.out) == (2, ""), done
        assert done.err.startswith("error: "), done.err
        assert "Traceback" not in done.err
        assert runs.folders == []
        return done.err.removeprefix("error: ").strip()

    return call


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--method", "knrm"), "unknown method 'knrm'; known, nearest first: knorm"),
        (("--method", "KNORM"), "unknown method 'KNORM'"),
        (("--benchmark", "needle"), "unknown benchmark 'needle'; known, nearest first: needles"),
        (("--subset", "rde"), "unknown subset 'rde'; known, nearest first: red"),
        (("--subset", "keys_1"), "unknown subset 'keys_1'"),
        (("--method", "knorm", "--budget", "haed"), "unknown budget 'haed'; known, nearest first: head"),
        (("--model", "no/such-model"), "model 'no/such-model': not a local folder, not loadable"),
        (("--model", "smollm"), "Give an embedded name (smollm2-135m)"),
        (("--model", "../.."), "the folder does not hold a readable model"),
        (("--device", "gpu"), "unknown device 'gpu'; use auto, cpu, cuda or cuda:N"),
        (("--device", "meta"), "unknown device 'meta'"),
        (("--device", "cpu:7"), "unknown device 'cpu:7'"),
        (("--device", "cuda:99"), "device 'cuda:99' was requested, but torch sees"),
        (("--dtype", "int8"), "unknown dtype 'int8'; use auto, float32, bfloat16, float16, float64"),
        (("--method", "carded", "--removed", "0.6"), "no threshold for 0.6 removed; its card has 0.25, 0.5"),
        (("--method", "knorm", "--threshold=-4"), "add --budget threshold"),
        (("--method", "carded", "--keep-tokens", "8"), "--keep-tokens never applies to the threshold budget"),
        (("--method", "streaming_llm", "--budget", "layer"), "streaming_llm does not work with budget 'layer'"),
        (("--method", "knorm", "--budget", "threshold"), "knorm has no calibrated thresholds"),
        (("--limit", "0"), "--limit must be a whole number from 1"),
        (("--option", "kvzip.chunk"), "--option must be METHOD.NAME=VALUE"),
        (("--option", "broken.why=x"), "unknown option of broken 'why'; known, nearest first: how"),
        (("--config", "missing.yaml"), "--config missing.yaml cannot be read"),
        (("--plugin", "missing.py"), "plugin missing.py is not a file"),
        (("--out", "x" * 300), "cannot be used: [Errno 36] File name too long"),
        (("--out", "/dev/null/results"), "--out /dev/null/results cannot be used: /dev/null is not a folder"),
        (
            ("--benchmark", "needles", "--length", "255", "--subset", "keys_1"),
            "needles needs --length 256 or more, got 255",
        ),
        (("--benchmark", "needles", "--data", "x.jsonl", "--subset", "keys_1"), "takes no --data"),
    ],
)
def test_bad_input_gets_one_message(refused: Callable[..., str], flags: tuple[str, ...], message: str) -> None:
    method = () if "--method" in flags else ("--method", "knorm")
    benchmark = TOY[2:] if "--benchmark" in flags else TOY
    benchmark = benchmark[:-2] if "--subset" in flags else benchmark
    assert message in refused(*method, *benchmark, *flags)


def test_a_model_without_a_surrogate_names_the_train_command(refused: Callable[..., str], runs: Runs) -> None:
    message = refused(*TOY, "--method", "kvzap")
    assert "kvprune train-kvzap" in message
    assert str(runs.model) in message


def cut(size: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:size])

    return damage


def without_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.self_attn.k_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def narrower(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}), encoding="utf-8")


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8") and None


@pytest.mark.parametrize(
    ("damage", "loads", "message"),
    [
        *((cut(size), True, "the folder does not hold a readable model") for size in (0, 7, 5000)),
        (without_a_weight, True, "1 weights are missing, such as model.layers.1.self_attn.k_proj.weight"),
        (narrower, True, "readable model"),
        (written("config.json", "{half"), False, ""),
        (written("config.json", "{}"), False, ""),
        (written("config.json", '{"model_type": "llama", "hidden_size": "wide"}'), False, ""),
        (written("config.json", '{"model_type": "bert"}'), False, "is of the family 'bert'; supported: llama"),
        (written("tokenizer.json", "{half"), False, ""),
        (written("tokenizer.json", "{}"), False, ""),
        (lambda folder: (folder / "tokenizer.json").unlink(), False, ""),
    ],
)
def test_a_damaged_model_folder_is_refused_and_leaves_nothing(
    refused: Callable[..., str],
    runs: Runs,
    tmp_path: Path,
    damage: Callable[[Path], None],
    loads: bool,
    message: str,
) -> None:
    broken = shutil.copytree(runs.model, tmp_path / "broken")
    damage(broken)
    told = refused(*TOY, "--method", "knorm", "--model", broken, loads=loads)
    assert str(broken) in told and message in told


def test_a_damaged_model_under_force_keeps_the_old_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs(*TOY, "--method", "knorm").code == 0
    before = (runs.folder / "samples.jsonl").read_bytes()

    def damaged(*_: object) -> None:
        raise loading.HarnessError("damaged")

    monkeypatch.setattr(loading, "load_model", damaged)
    assert runs(*TOY, "--method", "knorm", "--force").code == 2
    assert (runs.folder / "samples.jsonl").read_bytes() == before


def test_flags_come_from_a_file_too(runs: Runs, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("method: random\nremoved: [0.5, 0.75]\nbenchmark: toy\nlimit: 1\nsubset: red\n", encoding="utf-8")
    assert runs("--config", config, "--removed", "0.25").code == 0
    assert [row["variant"] for row in runs.rows()] == ["full", "random head 0.25"]


def test_negative_thresholds_are_given_with_an_equals_sign(runs: Runs) -> None:
    assert runs(*TOY, "--method", "carded,knorm", "--budget", "threshold", "--threshold=-2,-1").code == 0
    levels = [(row["method"], row["level"]) for row in runs.rows()]
    assert levels == [("full", None), ("carded", -2.0), ("carded", -1.0), ("knorm", -2.0), ("knorm", -1.0)]


def test_what_is_not_run_is_said(runs: Runs) -> None:
    done = runs(*TOY, "--method", "streaming_llm,knorm", "--budget", "layer")
    assert done.code == 0
    assert "not run: streaming_llm: streaming_llm does not work with budget 'layer': its scores are" in done.out


def test_alarms_stand_under_the_table(runs: Runs) -> None:
    done = runs(*TOY, "--method", "knorm", "--removed", "0.5")
    assert "alarm: 1 of 3 subsets: no overall mean, no rank" in done.out
    kinds = [alarm["kind"] for alarm in runs.json("summary.json")["alarms"]]
    assert "partial" in kinds


def test_failed_variants_do_not_fail_the_run(runs: Runs) -> None:
    done = runs(*TOY, "--method", "broken,knorm", "--removed", "0.5")
    assert (done.code, "1 not run" in done.out) == (0, True)
    assert [row["status"] for row in runs.rows()] == ["ok", "error", "ok"]


def test_an_unknown_flag_is_refused(cli: Callable[..., Ran]) -> None:
    done = cli("run", "--methods", "knorm")
    assert (done.code, "--methods" in done.err, done.out) == (2, True, "")


def test_an_unexpected_fault_keeps_its_traceback(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("harness.evaluation.execute.execute", fault)
    with pytest.raises(ZeroDivisionError, match="ours"):
        runs(*TOY, "--method", "knorm")
