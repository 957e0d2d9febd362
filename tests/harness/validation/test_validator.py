"""``validate``: good runs pass, each damage is found by its code, and readers survive all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.analysis.boards import boards
from harness.analysis.run_reader import Reading, find
from harness.errors import HarnessError
from harness.evaluation import provenance
from harness.reporting import render
from harness.results.schema import Line
from harness.validation import stored_masks, validator
from harness.validation.findings import CODES
from harness.validation.validator import report, validate
from tests.harness.driving import COMMITTED, QUICK, ROOT, Ran, Runs, contents
from tests.harness.validation.damages import DAMAGES, OUTSIDE, SAMPLES, SUMMARY, Do, damaged, good_run, masks, text

Cli = Callable[..., Ran]


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return good_run(COMMITTED, tmp_path_factory.mktemp("good"))


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """A copy of the good run, to change."""
    return Path(shutil.copytree(good, tmp_path / good.name))


def test_there_are_damages_of_every_kind() -> None:
    assert len(DAMAGES) >= 200
    tried = {damage.code for damage in DAMAGES.values()}
    assert CODES.keys() - tried == {"not-a-run", "unreadable", "text-path", "check-failed", "not-readable"}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_readers_survive_it(good: Path, tmp_path: Path, name: str) -> None:
    results = tmp_path / "results"
    results.mkdir()
    run, (code, left_out, _) = damaged(good, results, name), DAMAGES[name]
    (checked,) = validate(run)
    codes = {found.code for found in checked.findings}
    assert code in codes and "check-failed" not in codes, checked.findings
    assert checked.fine == all(CODES[one][0] == "warning" for one in codes)
    assert all(line.isprintable() for line in report([checked]))

    shutil.copytree(good, results / "good")
    found = find(results)  # nothing but a HarnessError of the run itself, which is a note here
    names = [one.folder.path.name for one in found.runs]
    assert ("good" in names, len(names)) == (True, 1 if left_out else 2), found.notes
    assert len(found.notes) == int(left_out)
    for form in render.FORMATS:
        shown = render.render(boards(found.runs), found.notes, form)
        assert OUTSIDE not in shown and shown.encode()
        assert form != "html" or "<script" not in shown


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("no items", "missing-file", "items.jsonl: is missing"),
        ("no summary", "no-summary", "run `kvprune rescore`"),
        ("interrupted", "unfinished", "with 3 of 20 lines; the first missing is 'needles/"),
        ("lines lost", "missing-lines", "has 11 of 20 lines"),
        ("the last newline lost", "no-newline", "samples.jsonl, line 20"),
        ("code that no commit has", "dirty", "changes that are not in commit"),
        ("masks that are gone", "missing-masks", "lacks 4 of 4 requested samples"),
    ],
)
def test_one_fault_is_told_once_with_what_mends_it(good: Path, tmp_path: Path, name: str, code: str, told: str) -> None:
    (checked,) = validate(damaged(good, tmp_path, name))
    assert [found.code for found in checked.findings] == [code] and not checked.more, checked.findings
    assert told in str(checked.findings[0])


def test_a_label_that_says_more_than_its_fields_is_quoted(good: Path, tmp_path: Path) -> None:
    (checked,) = validate(damaged(good, tmp_path, "a label that says more"))
    told = "variant 'knorm head 0.25 BEST METHOD' has 'BEST METHOD' where its fields have nothing"
    assert [found.what for found in checked.findings if found.code == "label"] == [told]


def test_lines_that_cannot_be_unpacked_are_not_missing_too(good: Path, tmp_path: Path) -> None:
    run = damaged(good, tmp_path, "gzip of gzip")
    shutil.copy(good / SUMMARY, run)
    (checked,) = validate(run)
    assert [str(one) for one in checked.findings] == [
        "error [packed] samples.jsonl.gz: is packed twice; unpack it once: gunzip"
    ]


def test_a_good_run_is_fine_and_left_as_it_is(cli: Cli, good: Path) -> None:
    before = contents(good)
    ran = cli("validate", good)
    assert (ran.code, ran.out, ran.err) == (0, f"{good.name}: fine\n", "")
    assert contents(good) == before


@pytest.mark.parametrize("change", [masks(), *(text(name, ": ", ":\r\t") for name in (SAMPLES, "items.jsonl"))])
def test_what_means_the_same_is_fine(good: Path, copy: Path, change: Do) -> None:
    change(copy)
    (checked,) = validate(copy)
    assert checked.findings == []
    assert find(copy).runs[0].lines == find(good).runs[0].lines


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


@pytest.mark.usefixtures("toys")
def test_a_run_of_methods_without_histograms_is_fine(cli: Cli, runs: Runs) -> None:
    assert runs("--benchmark", "toy", "--method", "knorm", "--removed", "0.5", "--limit", "2").code == 0
    assert not (runs.folder / "histograms.jsonl").exists()
    assert (ran := cli("validate", runs.out)).code == 0, ran.out
    (runs.folder / "histograms.jsonl").touch()  # as earlier releases left it
    assert (ran := cli("validate", runs.out)).code == 0, ran.out


def test_what_readers_take_otherwise_is_told_of(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(self: Reading) -> list[Line]:
        return list(self.folder.lines())[:-1]

    monkeypatch.setattr(Reading, "lines", property(fewer))
    (checked,) = validate(good)
    assert [found.code for found in checked.findings] == ["not-readable"]
    assert "is read as 19 lines of 4 samples, but its files have 20 of 4" in str(checked.findings[0])


def test_masks_of_too_many_bytes_are_not_opened(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(stored_masks, "read", opened.append)
    validate(damaged(good, tmp_path, "masks of many megabytes"))
    assert opened == []


def test_every_folder_of_a_folder_is_told_of(cli: Cli, good: Path, tmp_path: Path) -> None:
    for place in ("a", "all/deep"):
        shutil.copytree(good, tmp_path / place / good.name)
    DAMAGES["a token"].do(tmp_path / "all" / "deep" / good.name)
    (tmp_path / "all" / "none").mkdir()
    (tmp_path / "all" / "link").symlink_to(tmp_path / "a" / good.name)
    ran = cli("validate", tmp_path / "a", tmp_path / "all")
    assert ran.code == 1
    assert [line for line in ran.out.splitlines() if not line.startswith(" ")] == [
        f"{tmp_path / 'a' / good.name}: fine",  # by its path, since there are several of the name
        f"{tmp_path / 'all' / 'deep' / good.name}: 1 to fix, 0 to look at",
        f"{tmp_path / 'all' / 'link'}: 1 to fix, 0 to look at",
        "none: 1 to fix, 0 to look at",
    ]
    assert "error [secret] run.json: 'hardware' contains what looks like a key" in ran.out
    assert "abcdEFGH1234" not in ran.out
    assert "error [not-a-run] the folder: has none of a run's files" in ran.out


@pytest.mark.parametrize("path", ["nowhere", "file"])
def test_a_path_that_is_not_a_folder_is_a_mistake(cli: Cli, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("x")
    ran = cli("validate", tmp_path / path)
    assert (ran.code, ran.out, "is not a folder; give a run folder" in ran.err) == (2, "", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_told_of(copy: Path) -> None:
    (copy / SAMPLES).chmod(0)
    (checked,) = validate(copy)
    assert "unreadable" in {found.code for found in checked.findings}
    with pytest.raises(HarnessError, match="cannot be read"):
        find(copy)
    copy.chmod(0)
    (checked,) = validate(copy)
    assert [str(found) for found in checked.findings] == [
        "error [unreadable] the folder: cannot be read (Permission denied); make it readable: chmod u+r"
    ]


def test_a_check_that_fails_itself_is_a_finding(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: object) -> list[validator.Finding]:
        raise KeyError("odd")

    monkeypatch.setattr(validator, "CHECKS", (fails,))
    (checked,) = validate(good)
    assert [found.code for found in checked.findings] == ["check-failed"]
    assert "fails failed (KeyError: 'odd')" in checked.findings[0].what


def test_many_findings_of_a_kind_are_counted(copy: Path) -> None:
    (copy / SAMPLES).write_text("[]\n" * 900)
    (checked,) = validate(copy)
    assert checked.more["schema", SAMPLES] == 900 - validator.MOST_LISTED
    assert "  and 895 more of [schema] in samples.jsonl" in list(report([checked]))
