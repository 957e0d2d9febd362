"""``validate``: good runs pass, each damage is found by its code, and readers survive all of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.analysis.boards import boards
from harness.analysis.run_reader import Reading, find
from harness.evaluation import provenance
from harness.reporting import render
from harness.results.method_sources import Unknown, current_hash
from harness.results.run_folder import Line
from harness.validation import stored_masks
from harness.validation import validator as validation
from harness.validation.findings import CODES
from methods import registry
from methods.base import ModelInfo
from tests import damaged, damaging
from tests.harness.driving import COMMITTED, QUICK, ROOT, Ran, Runs, contents

Cli = Callable[..., Ran]
SMOLLM2 = ModelInfo("smollm2-135m", layers=30, query_heads=9, kv_heads=3, head_size=64, hidden_size=576)


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaging.good_run(COMMITTED, tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("name", damaged.DAMAGES)
def test_damage_is_found_and_readers_survive_it(good: Path, tmp_path: Path, name: str) -> None:
    results = tmp_path / "results"
    results.mkdir()
    run, (_, code, left_out) = damaged.damaged(good, results, name), damaged.DAMAGES[name]
    (checked,) = validation.validate(run)
    codes = {found.code for found in checked.findings}
    assert code in codes and "check-failed" not in codes, checked.findings
    assert checked.fine == all(CODES[one][0] == "warning" for one in codes)
    assert all(line.isprintable() for line in validation.report([checked]))

    shutil.copytree(good, results / "good")
    found = find(results)  # nothing but a HarnessError of the run itself, which is a note here
    names = [one.folder.path.name for one in found.runs]
    assert ("good" in names, len(names)) == (True, 1 if left_out else 2), found.notes
    assert len(found.notes) == int(left_out)
    for form in render.FORMATS:
        text = render.render(boards(found.runs), found.notes, form)
        assert damaging.OUTSIDE not in text and text.encode()
        assert form != "html" or "<script" not in text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no items", {"missing-file"}),
        ("no summary", {"no-summary"}),
        ("interrupted", {"unfinished"}),
        ("lines lost", {"missing-lines"}),
        ("the last newline lost", {"no-newline"}),
        ("code that no commit has", {"dirty"}),
        ("masks that are gone", {"missing-masks"}),
    ],
)
def test_one_fault_is_told_once_with_what_mends_it(good: Path, tmp_path: Path, name: str, told: set[str]) -> None:
    (checked,) = validation.validate(damaged.damaged(good, tmp_path, name))
    assert {found.code for found in checked.findings} == told, checked.findings
    assert len(checked.findings) == 1 and not checked.more


def test_lines_that_cannot_be_unpacked_are_not_missing_too(good: Path, tmp_path: Path) -> None:
    run = damaged.damaged(good, tmp_path, "gzip of gzip")
    shutil.copy(good / damaging.SUMMARY, run)
    (checked,) = validation.validate(run)
    (one,) = checked.findings
    assert str(one) == "error [packed] samples.jsonl.gz: is packed twice; unpack it once: gunzip"


def test_an_interrupted_run_hears_how_it_is_finished(good: Path, tmp_path: Path) -> None:
    (checked,) = validation.validate(damaged.damaged(good, tmp_path, "interrupted"))
    assert "with 3 of 20 lines; the first missing is 'needles/" in checked.findings[0].what
    assert "--resume" in checked.findings[0].do


def test_folders_of_one_name_are_told_apart(good: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        shutil.copytree(good, tmp_path / place / good.name)
    checked = [one for place in ("a", "b") for one in validation.validate(tmp_path / place)]
    heads = [line for line in validation.report(checked) if not line.startswith(" ")]
    assert heads == [f"{tmp_path / place / good.name}: fine" for place in ("a", "b")]


def test_there_are_damages_of_every_kind() -> None:
    assert len(damaged.DAMAGES) >= 150
    tried = {damage.code for damage in damaged.DAMAGES.values()}
    assert CODES.keys() - tried == {"not-a-run", "unreadable", "text-path", "check-failed", "not-readable"}


def test_a_good_run_is_fine(cli: Cli, good: Path) -> None:
    before = contents(good)
    ran = cli("validate", good)
    assert (ran.code, ran.out, ran.err) == (0, f"{good.name}: fine\n", "")
    assert contents(good) == before


def test_the_committed_runs_are_fine_and_read_without_model_code() -> None:
    script = (
        "import sys\n"
        "from harness.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    code = stop.code\n"
        "heavy = {'torch', 'transformers', 'datasets', 'scipy', 'pandas', 'methods.base'} & sys.modules.keys()\n"
        "print(f'loaded: {sorted(heavy)}, code {code}')\n"
    )
    command = [sys.executable, "-c", script, "validate", str(COMMITTED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: [], code 0", done.stdout + done.stderr


@pytest.mark.usefixtures("toys")
def test_what_the_harness_writes_is_fine(cli: Cli, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": "0" * 40, "dirty": False})
    assert runs(*QUICK).code == 0
    ran = cli("validate", runs.out)
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert ran.out.splitlines()[0] == f"{runs.folder.name}: fine"
    assert "note: the code of 'carded' was not checked: it is not a method of this package" in ran.out
    assert "note: data_hash was not checked" in ran.out


def test_stored_masks_of_a_good_run_are_fine(good: Path, tmp_path: Path) -> None:
    run = tmp_path / good.name
    shutil.copytree(good, run)
    damaging.masks()(run)
    (checked,) = validation.validate(run)
    assert checked.findings == [] and list((run / "masks").iterdir())


def test_lines_with_other_blanks_are_the_same_lines(good: Path, tmp_path: Path) -> None:
    run = tmp_path / good.name
    shutil.copytree(good, run)
    for name in ("samples.jsonl", "items.jsonl", "histograms.jsonl"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data.replace(b": ", b":\r\t", 1))
    (checked,) = validation.validate(run)
    assert checked.findings == []
    assert find(run).runs[0].lines == find(good).runs[0].lines


def test_what_readers_take_otherwise_is_told_of(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(self: Reading) -> list[Line]:
        return list(self.folder.lines())[:-1]

    monkeypatch.setattr(Reading, "lines", property(fewer))
    (checked,) = validation.validate(good)
    assert [found.code for found in checked.findings] == ["not-readable"]
    assert "is read as 19 lines of 4 samples, but its files have 20 of 4" in str(checked.findings[0])


def test_masks_of_too_many_bytes_are_not_opened(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / good.name
    shutil.copytree(good, run)
    damaged.DAMAGES["masks of many megabytes"].do(run)
    opened: list[Path] = []
    monkeypatch.setattr(stored_masks, "read", opened.append)
    validation.validate(run)
    assert opened == []


@pytest.mark.usefixtures("toys")
def test_a_run_of_methods_without_histograms_is_fine(cli: Cli, runs: Runs) -> None:
    assert runs("--benchmark", "toy", "--method", "knorm", "--removed", "0.5", "--limit", "2").code == 0
    assert not (runs.folder / "histograms.jsonl").exists()
    assert (ran := cli("validate", runs.out)).code == 0, ran.out
    (runs.folder / "histograms.jsonl").touch()  # as earlier releases left it
    assert (ran := cli("validate", runs.out)).code == 0, ran.out


def test_every_folder_of_a_folder_is_told_of(cli: Cli, good: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(good, tmp_path / name / good.name)
    damaged.DAMAGES["a token"].do(tmp_path / "b" / good.name)
    shutil.copytree(tmp_path / "b" / good.name, tmp_path / "all" / good.name)
    (tmp_path / "all" / "none").mkdir()
    (tmp_path / "all" / "link").symlink_to(tmp_path / "a" / good.name)
    ran = cli("validate", tmp_path / "a", tmp_path / "all")
    told = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    assert (ran.code, told) == (
        1,
        [
            f"{tmp_path / 'a' / good.name}: fine",
            f"{tmp_path / 'all' / 'link'}: 1 to fix, 0 to look at",
            "none: 1 to fix, 0 to look at",
            f"{tmp_path / 'all' / good.name}: 1 to fix, 0 to look at",
        ],
    )
    assert "error [secret] run.json: 'hardware' contains what looks like a key" in ran.out
    assert "abcdEFGH1234" not in ran.out
    assert "error [not-a-run] the folder: has none of a run's files" in ran.out


@pytest.mark.parametrize("path", ["nowhere", "file"])
def test_a_path_that_is_no_folder_is_a_mistake(cli: Cli, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("x")
    ran = cli("validate", tmp_path / path)
    assert (ran.code, ran.out, "is not a folder; give a run folder" in ran.err) == (2, "", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_told_of(good: Path, tmp_path: Path) -> None:
    run = tmp_path / good.name
    shutil.copytree(good, run)
    (run / "samples.jsonl").chmod(0)
    (checked,) = validation.validate(run)
    assert "unreadable" in {found.code for found in checked.findings}
    with pytest.raises(Exception, match="cannot be read"):
        find(run)


def test_a_check_that_fails_itself_is_a_finding(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: object) -> list[validation.Finding]:
        raise KeyError("odd")

    monkeypatch.setattr(validation, "CHECKS", (fails,))
    assert [found.code for found in validation.validate_run(good).findings] == ["check-failed"]


def test_many_findings_of_a_kind_are_counted(good: Path, tmp_path: Path) -> None:
    run = tmp_path / good.name
    shutil.copytree(good, run)
    (run / "samples.jsonl").write_text("[]\n" * 900)
    (checked,) = validation.validate(run)
    assert checked.more["schema", "samples.jsonl"] == 900 - validation.MOST_LISTED
    assert "  and 895 more of [schema] in samples.jsonl" in list(validation.report([checked]))


def test_method_hashes_read_off_the_sources_are_those_that_runs_write() -> None:
    seen = 0
    for name in (one for one in registry.names() if registry.get(one).__module__.startswith("methods.")):
        method = registry.build(name, {}).bind(SMOLLM2)
        options = json.dumps(method.options(), sort_keys=True)
        assert current_hash(name, SMOLLM2.name, [options]) == provenance.method_hash([method]), name
        seen += 1
    assert seen >= 17


@pytest.mark.parametrize(
    ("method", "model", "options", "why"),
    [
        ("someones", "smollm2-135m", "{}", "not a method of this package"),
        ("kvzap_mlp", "other", '{"weights": ""}', "not in this package"),
        ("kvzap_mlp", "smollm2-135m", '{"weights": "mine"}', "not in this package"),
        ("kvzip", "smollm2-135m", '{"pretext": "mine@12345678"}', "a file of the user's"),
        ("knorm", "smollm2-135m", "[" * 100_000, "not JSON"),
        ("knorm", "smollm2-135m", "[]", "not an object"),
    ],
)
def test_code_that_is_not_here_is_not_judged(method: str, model: str, options: str, why: str) -> None:
    with pytest.raises(Unknown, match=why):
        current_hash(method, model, [options])
