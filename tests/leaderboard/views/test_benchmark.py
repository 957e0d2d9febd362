"""The benchmark page opens on every kind of benchmark, and shows what the lines say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from harness.results.schema import Line
from leaderboard.escaping import plain
from leaderboard.views import benchmark_sections
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, KVZAP, both, changed, edit_json, lines_of, write_run
from tests.leaderboard.conftest import Page

SAME_SAMPLES = "Do methods fail on the same samples?"


def texts(app: AppTest) -> set[str]:
    return {one.value.replace("\\", "") for kind in (app.subheader, app.info, app.caption) for one in kind}


def differences(app: AppTest) -> dict[tuple[str, str], dict[str, object]]:
    table = next(one.value for one in app.dataframe if "difference" in one.value)
    return {(row["variant"], row["title"]): row for row in table.to_dict("records")}


def test_plain_run_at_two_lengths(page: Page, results: Path) -> None:
    for length in (64, 128):
        lines = [*lines_of(FULL, both(90.0), length=length), *lines_of(KNORM, both(50.0), length=length)]
        write_run(results / str(length), [*lines, *lines_of(KEYDIFF, both(90.0), length=length)])
    app = page("benchmark", levels="removed 0.5")
    assert {"By length", SAME_SAMPLES} <= texts(app)
    told = differences(app)
    assert told["knorm head 0.5", "red"]["difference"] == -40.0 and told["knorm head 0.5", "red"]["says"] == "worse"
    assert told["keydiff head 0.5", "blue"]["says"] == "tie"


def test_metrics_sampled_answers_and_questions(page: Page, results: Path) -> None:
    kl = {"kl_mean": 0.01, "kl_p95": 0.1, "top1": 0.9, "ppl_ratio": 1.1, "pass@1": 50.0}
    pruned = lines_of(KNORM, both(90.0), metrics=kl)
    run = write_run(results / "f", [*lines_of(FULL, both(100.0), metrics=kl), *pruned], model="a")
    alarm = {"benchmark": "toy", "length": 64, "kind": "truncated", "variant": None, "text": "some were <b>cut</b>"}
    edit_json(run / "summary.json", alarms=[alarm])
    lines: list[Line] = []
    for question in range(2):
        more = {"question_index": question, "prefills_paid": int(question == 0), "context_id": "c"}
        lines += [*lines_of(FULL, {f"q{question}": [90.0]}, **more), *lines_of(KNORM, {f"q{question}": [80.0]}, **more)]
    write_run(results / "q", lines, model="b")
    app = page("benchmark", model="a")
    assert {"Metrics beside the score", "Sampled answers"} <= texts(app)
    assert [warning.value for warning in app.warning] == [plain("some were <b>cut</b>")]
    assert any("pass@1" in one.value for one in app.dataframe)
    app = page("benchmark", model="b")
    assert "Several questions on one context" in texts(app)
    assert list(next(one.value for one in app.dataframe if "prefills" in one.value)["prefills"]) == [1, 1]


def test_odd_runs_open(page: Page, results: Path) -> None:
    assert any("No runs" in text for text in texts(page("benchmark")))
    write_run(results / "no control", lines_of(KNORM, both(50.0)), model="a")
    write_run(results / "alone", lines_of(FULL, both(5.0)), model="b")
    failed = lines_of(KNORM, {"red": [None], "blue": [None]})
    write_run(results / "failed", [*lines_of(FULL, both(90.0)), *failed], model="c")
    assert any("The full cache was not run here" in text for text in texts(page("benchmark", model="a")))
    page("benchmark", model="b")
    page("benchmark", model="c")


def test_variants_of_the_summary_that_no_line_has_are_named(page: Page, results: Path) -> None:
    run = write_run(results / "a", [*lines_of(FULL, both(90.0)), *lines_of(KNORM, both(50.0))])
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    for row in [*summary["cells"], *summary["pairs"], *summary["ranks"]]:
        row.update({name: f"{row[name]} x" for name in ("variant", "a", "b") if name in row})
    edit_json(run / "summary.json", **summary)
    assert any("not in samples.jsonl: full x, knorm head 0" in text for text in texts(page("benchmark")))


def test_questions_without_prefills_say_so(page: Page, results: Path) -> None:
    """A line may say which question it is of and not what it paid."""
    lines = [line for variant in (FULL, KNORM) for line in lines_of(variant, both(90.0))]
    write_run(results / "a", [ln.model_copy(update={"question_index": place % 4}) for place, ln in enumerate(lines)])
    shown = texts(page("benchmark"))
    assert any("prefills_paid" in text for text in shown)
    assert {SAME_SAMPLES, "Several questions on one context"} <= shown


def test_levels_that_few_digits_merge_are_apart(page: Page, results: Path) -> None:
    lines = lines_of(FULL, both(90.0))
    for tau, score in ((-4.366201, 50.0), (-4.366202, 40.0)):
        lines += lines_of(changed(KVZAP, level=tau), both(score))
    write_run(results / "a", lines)
    told = differences(page("benchmark", levels="tau -4.366202"))
    assert {row["difference"] for row in told.values() if row["level"]} == {-50.0}


def test_what_breaks_in_one_part_leaves_the_others(page: Page, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("<b>*bad*</b>")

    write_run(results / "a", [*lines_of(FULL, both(90.0)), *lines_of(KNORM, both(50.0))])
    monkeypatch.setattr(benchmark_sections, "by_subset", broken)
    app = page("benchmark", broken=True)
    (error,) = app.error
    assert error.value == f"The differences by subset cannot be shown: ZeroDivisionError: {plain('<b>*bad*</b>')}"
    assert SAME_SAMPLES in texts(app)


def test_without_trec_the_means_are_the_others(page: Page, results: Path) -> None:
    """Of a run whose facts have no group for it."""
    lines: list[Line] = []
    for score, variant in ((90.0, FULL), (60.0, KNORM)):
        trec = [0.0 if variant is KNORM else 90.0] * 12
        lines += lines_of(variant, {"trec": trec, "qasper": [score] * 12, "samsum": [score - 10] * 12})
    write_run(results / "a", lines)
    told = differences(page("benchmark", without="true", levels="removed 0.5"))
    titles = {title: (row["score"], row["control"]) for (_, title), row in told.items() if row["level"]}
    assert titles["without trec"] == (55.0, 85.0) and set(titles) == {"without trec", "qasper", "samsum"}
