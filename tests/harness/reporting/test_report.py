"""``report``: every format read back; runs that share a table and runs that may not; what is damaged is told of."""

from __future__ import annotations

import csv
import gzip
import html
import io
import itertools
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.boards import boards
from harness.analysis.run_reader import find
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.reporting.render import to_text
from harness.reporting.report_tables import sheet
from harness.results.run_folder import RunFolder
from harness.results.schema import Facts, VariantFields
from tests.harness.driving import COMMITTED, Ran, contents
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, KVZAP, RANDOM, both, edit_json, lines_of, write_run

ROOT = Path(__file__).parents[2]
CONTROL = lines_of(FULL, both(95))

Cli = Callable[..., Ran]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    near = {"red": [81.0, 78.0] * 6, "blue": [79.0, 81.0] * 6}
    lines = [*CONTROL, *lines_of(KNORM, both(80)), *lines_of(KEYDIFF, near), *lines_of(RANDOM, both(30))]
    write_run(folder / "first", lines)
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class Page(HTMLParser):
    """The tables of a page as rows of texts; fails on a tag that is not closed, and on anything loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}
        assert tag != "script"
        if tag == "meta":
            return
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


def test_csv_has_a_row_a_cell_with_all_fields(cli: Cli, results: Path) -> None:
    done = cli("report", results, "--format", "csv")
    assert (done.code, done.err) == (0, "")
    rows = rows_of(done.out)
    cells = json.loads((results / "first" / "summary.json").read_text("utf-8"))["cells"]
    assert len(rows) == len(cells) == 4 * 3
    for row, cell in zip(rows, cells, strict=True):
        assert cell.keys() <= row.keys()
        for name, value in cell.items():
            if isinstance(value, dict | list):
                assert json.loads(row[name]) == value
            elif isinstance(value, bool):
                assert row[name] == str(value).lower()
            else:
                assert row[name] == ("" if value is None else str(value))
    by_name = {row["variant"]: row for row in rows if row["subset"] == ""}
    assert (by_name[KNORM.label]["rank"], by_name[KNORM.label]["tie_with_best"]) == ("1", "true")
    assert (by_name[RANDOM.label]["rank"], by_name[RANDOM.label]["tie_with_best"]) == ("3", "false")
    assert float(by_name[KNORM.label]["difference"]) == -15.0
    assert by_name["full"]["rank"] == by_name["full"]["difference"] == ""
    assert {row["run"] for row in rows} == {"first"}
    assert {row["rank"] for row in rows if row["subset"]} == {""}


def test_markdown_has_a_row_a_variant(cli: Cli, results: Path) -> None:
    text = cli("report", results, "--format", "markdown").out
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    widths = {len(re.split(r"(?<!\\)\|", line)) for line in tables[0]}
    assert len(widths) == 1
    assert set(tables[0][1].replace("|", " ").split()) == {"--:", ":--"}
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in tables[0]]
    assert [row[0] for row in cells[2:]] == ["full", "knorm head 0.5", "keydiff head 0.5", "random head 0.5"]
    assert [row[cells[0].index("rank")] for row in cells[2:]] == ["", "1 tie", "1 tie", "3"]
    assert len(tables[1]) == 2 + 3  # three curves
    assert "## tiny, toy at 64 tokens" in text


def test_marks_in_names_do_not_break_markdown(cli: Cli, tmp_path: Path) -> None:
    odd = [line.model_copy(update={"variant": "a|b *c* <d>"}) for line in lines_of(KNORM, both(80))]
    write_run(tmp_path / "run", [*CONTROL, *odd])
    done = cli("report", tmp_path, "--format", "markdown").out
    assert r"a\|b \*c\* \<d>" in done
    page = Page(cli("report", tmp_path, "--format", "html").out)
    assert page.tables[0][2][0] == "a|b *c* <d>"


def test_html_is_one_page_with_the_same_figures(cli: Cli, results: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = cli("report", results, "--format", "html", "--out", out)
    assert (done.code, done.out) == (0, "")
    page = Page(out.read_text("utf-8"))
    scores, curves, control, level = page.tables
    assert [row[0] for row in scores[1:]] == ["full", "knorm head 0.5", "keydiff head 0.5", "random head 0.5"]
    assert scores[2][scores[0].index("against control")].startswith("-15.0 (-15.0 to -15.0)")
    assert (len(curves), len(control), len(level)) == (1 + 3, 1 + 3, 1 + 3)


def test_the_table_shows_ties_and_ranks_only_where_allowed(cli: Cli, results: Path, tmp_path: Path) -> None:
    out = cli("report", results).out
    assert re.search(r"knorm head 0\.5 .* 0\.5 .* 1 tie .* 80\.0 ", out)
    few = write_run(tmp_path / "few", [*lines_of(FULL, both(95, 5)), *lines_of(KNORM, both(80, 5))])
    out = cli("report", few).out
    assert "No ranks: under 10 samples a subset. No interval under 10 samples a subset." in out


@pytest.mark.parametrize("width", [40, 100])
def test_no_name_and_no_figure_is_cut_in_a_narrow_terminal(results: Path, width: int) -> None:
    sheets = [sheet(board, every_pair=True) for board in boards(find(results).runs)]
    wide, narrow = to_text(sheets, []), to_text(sheets, [], width)
    assert max(map(len, narrow.splitlines())) < max(map(len, wide.splitlines()))
    for table in (table for page in sheets for table in page.tables):
        for place, cell in ((place, cell) for row in table.rows for place, cell in enumerate(row)):
            for part in cell.split() if place in table.left[1:] else [cell]:  # texts wrap between words
                assert part in narrow


def test_alarms_are_shown(cli: Cli, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [*CONTROL, *lines_of(KNORM, both(99))])
    for form, mark in (("table", "alarm: "), ("markdown", "- **alarm:** "), ("html", "Alarm: ")):
        assert f"{mark}knorm head 0.5 beats the control by 4.0" in cli("report", run, "--format", form).out


def test_a_mean_of_few_subsets_stands_outside_the_score(cli: Cli, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [*CONTROL, *lines_of(KNORM, both(80)), *lines_of(RANDOM, both(30))])
    edit_json(run / "run.json", facts={"toy": Facts(subsets=6, chance=0.0).to_json()})
    (run / "summary.json").unlink()
    out = cli("report", run).out
    assert "mean of 2 of 6" in out
    assert "alarm: 2 of 6 subsets: no overall mean, no rank" in out
    overall = [row for row in rows_of(cli("report", run, "--format", "csv").out) if row["subset"] == ""]
    assert [(row["score"], row["partial_mean"], row["rank"]) for row in overall] == [
        ("", "95.0", ""),
        ("", "80.0", ""),
        ("", "30.0", ""),
    ]


def test_runs_of_the_same_samples_share_a_table(cli: Cli, results: Path) -> None:
    write_run(results / "second", [*CONTROL, *lines_of(KVZAP, both(90), removed=0.5, requested=0.5)])
    (board,) = boards(find(results).runs)
    assert [run.name for run in board.runs] == ["first", "second"]
    level = [p for p in board.pairs if p.against == "level" and p.b == KVZAP.label]
    assert [p.a for p in level] == [KNORM.label, KEYDIFF.label, RANDOM.label]
    ranks = {row.variant: row.rank for row in board.ranks}
    assert ranks == {KNORM.label: 2, KEYDIFF.label: 2, RANDOM.label: 4, KVZAP.label: 1}
    rows = rows_of(cli("report", results, "--format", "csv").out)
    assert {row["variant"]: row["run"] for row in rows}[KVZAP.label] == "second"
    assert sum(row["variant"] == "full" and row["subset"] == "" for row in rows) == 1


def test_of_a_variant_in_two_runs_the_first_is_shown_and_a_difference_is_said(cli: Cli, results: Path) -> None:
    write_run(results / "second", [*CONTROL, *lines_of(RANDOM, both(70))])
    out = cli("report", results).out
    assert "random head 0.5 is in first and second, with other scores on 24 samples: the first is shown" in out
    assert re.search(r"random head 0\.5 .* 30\.0 ", out)


@pytest.mark.parametrize(
    ("changes", "lines", "told"),
    [
        ({"dtype": "bfloat16"}, CONTROL, "other dtype"),
        ({"device": "cuda"}, CONTROL, "other device"),
        ({}, lines_of(FULL, both(94)), "the control's scores differ"),
        ({}, lines_of(FULL, both(95, 11)), "other samples"),
        ({}, lines_of(Variant("full", thinking=True), both(95)), "other control, thinking"),
    ],
)
def test_runs_that_may_not_be_compared_have_tables_of_their_own(
    cli: Cli, results: Path, changes: dict[str, Any], lines: Any, told: str
) -> None:
    more = lines_of(KVZAP, both(90, len(lines) // 2), removed=0.5, requested=0.5)
    write_run(results / "second", [*lines, *more], **changes)
    found = boards(find(results).runs)
    assert [[run.name for run in board.runs] for board in found] == [["first"], ["second"]]
    assert f"apart from second: {told}" in cli("report", results).out


def test_models_and_lengths_have_tables_of_their_own(cli: Cli, results: Path) -> None:
    write_run(results / "second", [*CONTROL, *lines_of(KNORM, both(70))], model="other")
    longer = [line.model_copy(update={"length": 128}) for line in CONTROL]
    write_run(results / "third", longer)
    found = [board.title for board in boards(find(results).runs)]
    assert found == ["other, toy at 64 tokens", "tiny, toy at 64 tokens", "tiny, toy at 128 tokens"]
    assert "apart from" not in cli("report", results).out


def test_damaged_runs_are_told_of_and_the_others_shown(cli: Cli, results: Path) -> None:
    broken = {
        "a": ("samples.jsonl", "{broken\n"),
        "b": ("run.json", "{broken"),
        "c": ("items.jsonl", "{broken\n"),
        "d": ("run.json", '{"schema_version": 9}'),
    }
    for name, (file, text) in broken.items():
        shutil.copytree(results / "first", results / name)
        (results / name / file).write_text(text, encoding="utf-8")
        if file == "samples.jsonl":
            (results / name / "summary.json").unlink()
    shutil.copytree(results / "first", results / "e")
    (results / "e" / "run.json").unlink()
    done = cli("report", results)
    assert done.code == 0
    for name, (file, _) in broken.items():
        assert f"note: left out: {results / name / file}" in done.out
    assert f"note: left out: {results / 'e'} has no run.json" in done.out
    assert "runs: first\n" in done.out
    assert "left out" in cli("report", results, "--format", "csv").err
    done = cli("report", results / "a")
    assert (done.code, done.out, "samples.jsonl, line 1" in done.err) == (2, "", True)


def shorten(run: Path, how: str, packed: bool) -> Path:
    """Damage to a complete run's lines: the file's path."""
    path = run / "samples.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    left = {"emptied": b"", "one line less": b"".join(lines[:-1]), "cut inside a line": b"".join(lines)[:-9]}
    if how != "gone":
        path.write_bytes(left.get(how, b"".join(lines)))
    if packed:
        whole = gzip.compress(path.read_bytes())
        path.with_suffix(".jsonl.gz").write_bytes(whole[:-20] if how == "cut inside the packed" else whole)
    if packed or how == "gone":
        path.unlink()
    return path.with_suffix(".jsonl.gz") if packed else path


LOST = itertools.product(("emptied", "one line less", "cut inside a line"), (False, True))


@pytest.mark.parametrize(("how", "packed"), [*LOST, ("gone", False), ("cut inside the packed", True)])
def test_a_complete_run_that_lost_lines_is_not_reported(cli: Cli, results: Path, how: str, packed: bool) -> None:
    shutil.copytree(results / "first", results / "second")
    path = shorten(results / "second", how, packed)
    told = "cannot be read" if how == "cut inside the packed" else "96 lines that the run had when it was summarised"
    for form in ("table", "markdown", "html"):
        done = cli("report", results, "--format", form)
        assert done.code == 0
        said = html.unescape(done.out.replace("\\_", "_"))
        assert f"left out: {path} " in said and told in said
        assert re.search(r"runs: first *(\n|</p>)", said)
    done = cli("report", results, "--format", "csv")
    assert (done.code, f"left out: {path} " in done.err) == (0, True)
    assert {row["run"] for row in rows_of(done.out)} == {"first"}
    alone, first = results / "second", results / "first"
    for args in (("report", alone), ("compare", alone), ("compare", first, alone), ("compare", alone, "full", "knorm")):
        done = cli(*args)
        assert (done.code, done.out, f"{path} " in done.err, told in done.err) == (2, "", True, True)


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_run_is_counted_and_not_parsed(
    cli: Cli, results: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = results / "first" / "samples.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-1])  # a last line without its end is a line
    shorten(results / "first", "whole", packed)
    parsed: list[Path] = []
    monkeypatch.setattr("harness.results.run_folder._read", parsed.append)
    monkeypatch.setattr("harness.results.run_folder._BLOCK", 1_000)  # lines longer than a block, ends at its edges
    assert cli("report", results).code == 0
    assert parsed == []
    assert RunFolder(results / "first").count() == 96


def test_lines_are_counted_by_what_the_run_wrote_down_where_its_samples_are_not_told(cli: Cli, results: Path) -> None:
    (results / "first" / "items.jsonl").unlink()
    assert cli("report", results / "first").code == 0
    shorten(results / "first", "one line less", False)
    assert "has 95 of the 96 lines" in cli("report", results / "first").err


def test_an_incomplete_run_is_shown_as_one(cli: Cli, results: Path) -> None:
    path = results / "first" / "samples.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:60]) + b'{"torn')
    (results / "first" / "summary.json").unlink()
    done = cli("report", results)
    assert (done.code, "note: first is incomplete (60 of 96 lines)" in done.out) == (0, True)


def test_an_older_summary_is_derived_anew_and_left_alone(cli: Cli, results: Path) -> None:
    path = results / "first" / "summary.json"
    whole = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({name: whole[name] for name in ("schema_version", "complete", "cells")}), "utf-8")
    before = contents(results / "first")
    run = find(results).runs[0]
    assert run.summary.to_json() == whole
    assert cli("report", results).code == 0
    assert contents(results / "first") == before


def test_methods_without_figures_keep_their_row(cli: Cli, results: Path) -> None:
    run = results / "first"
    absent = Variant("kvzip", "head", "removed", 0.5, phase="decode")
    edit_json(run / "run.json", unsupported=[absent.fields()])
    found = find(run).runs[0]
    fields = VariantFields.model_validate(absent.fields())
    summary = summarise(found.lines, found.facts, True, 0, [(fields, "prefill only")])
    (run / "summary.json").write_text(json.dumps(summary.to_json()), encoding="utf-8")
    assert re.search(r"kvzip head 0\.5 .*prefill only", cli("report", run).out)
    assert [note for _, note in find(run).runs[0].unsupported] == ["prefill only"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("report", "nowhere"), "nowhere is not a folder; give a run folder or a folder of them"),
        (("report", "{empty}"), "nothing to read (it has no run folders)"),
        (("report", "{results}", "--format", "htm"), "unknown --format 'htm'; known, nearest first: html"),
        (("report", "{results}", "--out", "/dev/null/x"), "--out /dev/null/x cannot be written to"),
        (("report", "{results}/frist"), "in {results}: first"),
    ],
)
def test_mistakes_get_one_message(cli: Cli, results: Path, tmp_path: Path, args: Any, message: str) -> None:
    (tmp_path / "empty").mkdir()
    names = {"results": results, "empty": tmp_path / "empty"}
    done = cli(*(arg.format(**names) for arg in args))
    assert (done.code, done.out) == (2, "")
    assert message.format(**names) in done.err


def test_the_committed_run_prints(cli: Cli) -> None:
    before = contents(COMMITTED)
    out = cli("report", COMMITTED).out
    assert "smollm2-135m, needles at 1,024 tokens" in out
    assert re.search(r"kvzip global 0\.875 .* 90\.0 .* -10\.0 tie ", out)
    assert re.search(r"kvzip global +│ 98\.2 ", out)
    assert "measured removed ends at 0.819" in out
    assert "alarm: kvzap_mlp threshold tau=-4.3662 removed 0.553 where 0.5 was asked for" in out
    assert contents(COMMITTED) == before
