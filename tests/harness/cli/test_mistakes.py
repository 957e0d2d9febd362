"""What a hostile or clumsy user does to the command line: one message, a code that is not 0, nothing half-written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.engine.adapter import describe
from harness.models import loading
from harness.results.run_folder import RunFolder
from methods.kvzap import files
from methods.kvzap.surrogate import Surrogate, needed_shape
from tests.harness.driving import QUICK, Ran, Runs, contents, shorten

pytestmark = pytest.mark.usefixtures("toys")
Cli = Callable[..., Ran]


def refused(done: Ran) -> str:
    assert done.code == 2, done
    assert done.err.startswith("error: ") and "Traceback" not in done.err
    return done.err.removeprefix("error: ").strip()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("plugin.py", "\nraise RuntimeError('no')", "failed to load: RuntimeError: no (line 2)"),
        ("plugin.py", "print('hello')", "registered no method; put @register above its Method class"),
        ("plugin.txt", "x = 1", "give a file that ends in .py"),
        (".", "", "is not a file"),
    ],
)
def test_a_broken_plugin_is_refused_by_both_commands(
    runs: Runs, cli: Cli, unloaded: Callable[[], None], tmp_path: Path, file: str, text: str, message: str
) -> None:
    unloaded()
    if text:
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert message in refused(runs(*QUICK, "--plugin", tmp_path / file))
    assert message in refused(cli("check-method", "mine", "--plugin", tmp_path / file))
    assert runs.folders == []


def test_check_method_does_not_check_a_built_in_in_place_of_a_plugins_own(cli: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    head = "from methods.registry import register\nfrom methods.knorm import Knorm\n"
    plugin.write_text(f"{head}@register\nclass Mine(Knorm):\n    name = 'mine'", encoding="utf-8")
    assert "method 'knorm' is built in, not of plugin" in refused(cli("check-method", "knorm", "--plugin", plugin))


def test_no_path_of_a_surrogate_is_in_the_results(runs: Runs, tmp_path: Path) -> None:
    info = describe(loading.config_of(str(runs.model)), str(runs.model))
    for number in range(2):
        torch.manual_seed(number)
        shape = needed_shape(info, "linear", "hidden")
        files.save(Surrogate(shape, "hidden"), {}, tmp_path / str(number) / "mine")
    flags = ("--benchmark", "toy", "--subset", "red", "--limit", "1", "--method", "kvzap_linear", "--threshold=-1")
    given = [("--option", f"kvzap_linear.weights={tmp_path / str(number) / 'mine'}") for number in range(2)]
    done = runs(*flags, *given[0], *given[1])
    assert done.code == 0, done.err
    labels = {row["variant"] for row in runs.rows()} - {"full"}
    assert len(labels) == 2 and all("weights=mine@" in label for label in labels)
    stored = b"".join(contents(runs.folder).values()).decode()
    assert str(tmp_path) not in stored
    assert runs(*flags, *given[0], *given[1]).code == 0  # the same run, which is only read


def test_a_name_out_of_results_is_no_surrogate(runs: Runs, unloaded: Callable[[], None]) -> None:
    unloaded()
    flags = ("--method", "kvzap_linear", "--option", "kvzap_linear.weights=mine@0123abcd", "--threshold=-1")
    assert "is how results name a surrogate; give its folder or file" in refused(runs("--benchmark", "toy", *flags))


def test_answers_without_their_run_json_are_not_dropped(runs: Runs, unloaded: Callable[[], None]) -> None:
    assert runs(*QUICK).code == 0
    (runs.folder / "run.json").unlink()
    before = contents(runs.folder)
    unloaded()
    for more in ((), ("--resume",)):
        assert "has samples.jsonl but no run.json; take it from a copy" in refused(runs(*QUICK, *more))
    assert contents(runs.folder) == before


@pytest.mark.parametrize("content", ['{"schema_version": 1}', '{"schema_version": 1, "method_hashes": []}'])
def test_a_run_json_without_hashes_is_refused(runs: Runs, content: str) -> None:
    assert runs(*QUICK).code == 0
    shorten(runs, 3)
    (runs.folder / "run.json").write_text(content, encoding="utf-8")
    assert re.search(r"run\.json is damaged .*run with --force", refused(runs(*QUICK, "--resume")))


@pytest.mark.parametrize("content", ['{"complete": true}', '{"cells": 3}', "{}"])
def test_a_summary_that_shows_nothing_is_derived_anew(runs: Runs, content: str) -> None:
    assert runs(*QUICK).code == 0
    before = contents(runs.folder)
    (runs.folder / "summary.json").write_text(content, encoding="utf-8")
    assert runs(*QUICK).code == 0
    assert contents(runs.folder) == before


@pytest.mark.parametrize("content", [None, b"", b'{"sample_id": ', b"\xff\xfe"])
def test_resume_restores_the_items(runs: Runs, content: bytes | None) -> None:
    assert runs(*QUICK).code == 0
    before = contents(runs.folder)
    shorten(runs, 3)
    path = runs.folder / "items.jsonl"
    path.unlink() if content is None else path.write_bytes(content)
    assert runs(*QUICK, "--resume").code == 0
    assert contents(runs.folder) == before


def test_a_run_folder_that_is_a_file(runs: Runs, unloaded: Callable[[], None]) -> None:
    assert runs(*QUICK).code == 0
    place = runs.folder
    place.rename(place.with_name("away"))
    place.write_text("", encoding="utf-8")
    unloaded()
    assert "it is not a writable folder; give another --out" in refused(runs(*QUICK))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_message(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFolder, "append", lambda *_: Path("/dev/full").open("a", encoding="utf-8"))  # noqa: SIM115
    done = runs(*QUICK)
    told = done.err.splitlines()[-1]  # under the progress bar
    assert done.code == 2 and "Traceback" not in done.err
    assert told.startswith("error: /dev/full cannot be written to: No space left on device; once it can, continue")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("report", "x" * 400), "is not a folder; give a run folder"),
        (("compare", "x" * 400), "is not a folder; give a run folder"),
        (("rescore", "x" * 400), "is not a folder; give a run folder"),
        (("score", "--benchmark", "longbench", "--predictions", "x" * 400), "File name too long; give a path"),
        (("score", "--benchmark", "longbench", "--predictions", "."), "has no SUBSET.jsonl of any of"),
        (
            ("score", "--benchmark", "longbench", "--predictions", "none", "--json", "/none/x"),
            "--json /none/x cannot be",
        ),
        (("lm-eval", "--tasks", "x", "--include-path", "/none"), "--include-path /none is not a folder"),
        (("agreement", "--length", "9" * 12), "no sample fits model"),
        (("agreement", "--dtype", "int8"), "unknown dtype 'int8'"),
        (("agreement", "--removed", "nan"), "--removed must be a number, at least 0 and less than 1, got 'nan'"),
        (("agreement", "--method", "knrm"), "unknown method 'knrm'; known, nearest first: knorm"),
        (("profile", "sweep", "--length", "9" * 12), "no sample fits model"),
        (("profile", "samples", "--subset", "keys_9"), "needles has no subset 'keys_9'"),
        (("train-kvzap", "--kind", "mlp", "--data", ".", "--out", "/dev/null/x"), "/dev/null is not a folder"),
        (("run", "--length", "256," + "9" * 12), "no sample fits model"),
        (("run", "--data", "x" * 400, "--benchmark", "aime25"), "cannot be read: File name too long"),
    ],
)
def test_mistakes_are_named_before_the_model_loads(
    cli: Cli,
    unloaded: Callable[[], None],
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    unloaded()
    own = command[0] in ("run", "agreement", "profile", "train-kvzap")
    assert message in refused(cli(*command, *(("--model", model_folder) if own else ())))
    assert list(tmp_path.iterdir()) == []
