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

from harness import formats, provenance, validation
from harness.merging import boards
from harness.reading import Reading, find
from harness.results import Line, RunFolder
from harness.validation import publishing, stored_masks, strict
from harness.validation.findings import CODES
from harness.validation.sources import Sources, Unknown
from methods import registry
from methods.base import ModelInfo
from tests import damaged, damaging
from tests.harness.driving import COMMITTED, QUICK, ROOT, Ran, Runs, contents
from tests.harness.made_runs import FULL, both, edit_json, lines_of, summary_of, write_run

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
    assert all(line.isprintable() for line in validation.told([checked]))

    shutil.copytree(good, results / "good")
    found = find(results)  # nothing but a HarnessError of the run itself, which is a note here
    names = [one.folder.path.name for one in found.runs]
    assert ("good" in names, len(names)) == (True, 1 if left_out else 2), found.notes
    assert len(found.notes) == int(left_out)
    for form in formats.FORMATS:
        text = formats.render(boards(found.runs), found.notes, form)
        assert damaging.OUTSIDE not in text and text.encode()
        assert form != "html" or "<script" not in text


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
def test_what_the_harness_writes_is_fine(cli: Cli, runs: Runs) -> None:
    assert runs(*QUICK).code == 0
    ran = cli("validate", runs.out)
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert ran.out.splitlines()[0] == f"{runs.folder.name}: fine"
    assert "note: the code of 'carded' was not checked: it is no method of this package" in ran.out
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
    assert "is read as 19 lines of 4 samples, the files have 20 of 4" in str(checked.findings[0])


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
            f"{good.name}: fine",
            f"{good.name}: 1 to fix, 0 to look at",  # by its link
            "none: 1 to fix, 0 to look at",
            f"{good.name}: 1 to fix, 0 to look at",
        ],
    )
    assert "error [secret] run.json: 'hardware' holds what looks like a key" in ran.out
    assert "abcdEFGH1234" not in ran.out
    assert "error [not-a-run] the folder: has no file of a run" in ran.out


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
    assert "  and 895 more of [schema] in samples.jsonl" in list(validation.told([checked]))


def test_method_hashes_read_off_the_sources_are_those_that_runs_write() -> None:
    sources, seen = Sources(), 0
    for name in (one for one in registry.names() if registry.get(one).__module__.startswith("methods.")):
        method = registry.build(name, {}).bind(SMOLLM2)
        options = json.dumps(method.options(), sort_keys=True)
        assert sources.hash(name, SMOLLM2.name, [options]) == provenance.method_hash([method]), name
        seen += 1
    assert seen >= 17


@pytest.mark.parametrize(
    ("method", "model", "options", "why"),
    [
        ("someones", "smollm2-135m", "{}", "no method of this package"),
        ("kvzap_mlp", "other", '{"weights": ""}', "not in this package"),
        ("kvzap_mlp", "smollm2-135m", '{"weights": "mine"}', "not in this package"),
        ("kvzip", "smollm2-135m", '{"pretext": "mine@12345678"}', "a file of the user's"),
        ("knorm", "smollm2-135m", "[" * 100_000, "no JSON"),
        ("knorm", "smollm2-135m", "[]", "no object"),
    ],
)
def test_code_that_is_not_here_is_not_judged(method: str, model: str, options: str, why: str) -> None:
    with pytest.raises(Unknown, match=why):
        Sources().hash(method, model, [options])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("/home/a/b", "PATHS"),
        ("weights=/mnt/models/x", "PATHS"),
        ("'/scratch/x'", "PATHS"),
        ("see ~/models/x", "PATHS"),
        ("D:\\models", "PATHS"),
        ("file:///x", "PATHS"),
        ("hf_" + "a1B2" * 8, "SECRETS"),
        ("https://me:pass@host/x", "SECRETS"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", "SECRETS"),
        ("password=correcthorse", "SECRETS"),
        ("a.b+c@example.co.uk", "MAILS"),
        ("</script >", "MARKUP"),
        ("<svg/onload=x>", "MARKUP"),
        ("JaVaScRiPt:x", "MARKUP"),
        ("../x", "ODD_NAME"),
        ("a/../b", "ODD_NAME"),
        ("/a", "ODD_NAME"),
        ("a\\b", "ODD_NAME"),
    ],
)
def test_private_and_odd_texts_are_known(text: str, code: str) -> None:
    assert getattr(publishing, code).search(text)


@pytest.mark.parametrize(
    "text",
    [
        "kvzap_mlp threshold tau=-4.3662",
        "needles/keys_1/1024/0/0",
        "Qwen/Qwen3-8B",
        "fidelity:needles:repeat",
        "expected float32 [3, 4], got <class 'torch.Tensor'>",
        "CPU, 1 threads",
        "kvprune masked (torch)",
        "x < y and a > b",
        "pretext=mine@1a2b3c4d",
        "10 pairs/data/s",
        "task-skeleton-of-a-long-name",
        '{"chunk": 2048, "lead_in": 8, "pretext": "repeat"}',
    ],
)
def test_plain_texts_are_let_through(text: str) -> None:
    for pattern in (publishing.PATHS, publishing.SECRETS, publishing.MAILS, publishing.MARKUP):
        assert not pattern.search(text)


SLOW = ["a.", "<", "<  ", "< " + " " * 999, "eyJ-", "://a:", "password ", "~a", "\\\\a", "onabc ", "&#", "a@b."]


@pytest.mark.parametrize("part", SLOW)
def test_texts_made_to_be_slow_end(part: str) -> None:
    text = part * (100_000 // len(part))  # minutes, were a pattern to scan all of it from each place anew
    for pattern in (publishing.SECRETS, publishing.PATHS, publishing.MAILS, publishing.MARKUP):
        assert not pattern.search(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[NaN]", "not-finite"),
        ("[-Infinity]", "not-finite"),
        ("[1e400]", "huge-number"),
        (f"[{2**53 + 1}]", "huge-number"),
        ('{"a": 1, "a": 1}', "duplicate-key"),
        ("[" * 17 + "]" * 17, "nesting"),
        ('["\\udc00"]', "surrogate"),
        ('{"\\ud83d": 1}', "surrogate"),
        ("[1,]", "not-json"),
        ("", "not-json"),
    ],
)
def test_json_that_no_run_writes_is_refused(text: str, code: str) -> None:
    with pytest.raises(strict.Refused) as refused:
        strict.parse(text)
    assert refused.value.code == code


def test_json_that_a_run_may_write_is_taken() -> None:
    value = {"a": [1.5e-300, -(2**53), None, True, "\U0001f600 \u2028"], "b": {"c": {}}}
    assert strict.parse(json.dumps(value)) == value
    assert strict.parse("[" * 16 + "]" * 16)


# what readers learned on the way


def test_characters_at_which_python_parts_lines_do_not_part_items(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lines_of(FULL, both(95)))
    rows = RunFolder(run).path / "items.jsonl"
    rows.write_text(rows.read_text("utf-8").replace("right toy", "right\u2028\u0085toy"), "utf-8")
    assert len(find(run).runs[0].items) == 24


def test_a_control_at_the_floor_without_an_overall_score_has_its_alarm() -> None:
    summary = summary_of(lines_of(FULL, {"red": [5.0] * 3, "blue": [None] * 3}))
    (told,) = [alarm["text"] for alarm in summary["alarms"] if alarm["kind"] == "control_at_floor"]
    assert told == "the control lies at chance or under 20: nothing can be compared"


def test_an_infinite_threshold_leaves_the_summary_json() -> None:
    from harness.variants import Variant

    variants = [Variant(name, "threshold", "threshold", float("-inf")) for name in ("kvzap_mlp", "kvzap_linear")]
    lines = [lines_of(FULL, both(95)), *(lines_of(one, both(90), removed=0.0) for one in variants)]
    assert json.loads(json.dumps(summary_of(*lines), allow_nan=False))["pairs"][0]["asked"]["value"] == "-inf"


def test_runs_whose_lines_cannot_be_read_stand_alone(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        write_run(tmp_path / name, lines_of(FULL, both(95)))
    path = tmp_path / "second" / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"status": "ok"', b'"status": "od"', 1))
    found = boards(find(tmp_path).runs)
    assert sorted([run.name for run in board.runs] for board in found) == [["first", "third"], ["second"]]
    assert all("lines cannot be read" in board.notes[0] and "line 1" in board.notes[0] for board in found)


def test_a_link_out_of_the_results_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere", lines_of(FULL, both(95)))
    write_run(tmp_path / "results" / "first", lines_of(FULL, both(95)))
    (tmp_path / "results" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "results" / "again").symlink_to(tmp_path / "results" / "first")
    found = find(tmp_path / "results")
    assert [run.name for run in found.runs] == ["first"]
    assert [note.endswith("put the folder itself there") for note in found.notes] == [True]
    assert find(tmp_path / "results" / "link").runs[0].name == "elsewhere"  # asked for by name


def test_a_summary_whose_cells_are_odd_is_derived_anew(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lines_of(FULL, both(95)))
    whole = json.loads((run / "summary.json").read_text("utf-8"))
    edit_json(run / "summary.json", cells=[{**whole["cells"][0], "n": "many"}])
    assert find(run).runs[0].summary["cells"] == whole["cells"]
