"""The benchmark page opens on every kind of benchmark, and shows what the lines say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from harness.results.run_folder import Line
from leaderboard.data.differences import GROUP, SUBSET, columns
from leaderboard.escaping import plain
from leaderboard.views import benchmark_sections
from leaderboard.views.layout import RESULTS
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, KVZAP, both, edit_json, write_run
from tests.harness.made_runs import lines_of as made

PAGE = Path(__file__).parents[2] / "leaderboard" / "views" / "benchmark.py"


@pytest.fixture(autouse=True)
def _own_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RESULTS, str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(str(PAGE), default_timeout=300)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception and not app.error
    return app


def texts(app: AppTest) -> set[str]:
    return {one.value for kind in (app.subheader, app.info, app.caption) for one in kind}


def test_plain_run_at_two_lengths(tmp_path: Path) -> None:
    for length in (64, 128):
        lines = [*made(FULL, both(90.0), length=length), *made(KNORM, both(50.0), length=length)]
        write_run(tmp_path / str(length), [*lines, *made(KEYDIFF, both(90.0), length=length)])
    app = opened(level="removed 0.5")
    assert {"By length", "Do methods fail on the same samples?"} <= texts(app)
    table = next(one.value for one in app.dataframe if "difference" in one.value)
    told = {(row["variant"], row["title"]): row for row in table.to_dict("records")}
    assert told["knorm head 0.5", "red"]["difference"] == -40.0 and told["knorm head 0.5", "red"]["says"] == "worse"
    assert told["keydiff head 0.5", "blue"]["says"] == "tie"


def test_fidelity_drawn_answers_and_questions(tmp_path: Path) -> None:
    kl = {"kl_mean": 0.01, "kl_p95": 0.1, "top1": 0.9, "ppl_ratio": 1.1}
    write_run(tmp_path / "f", [*made(FULL, both(100.0), metrics=kl), *made(KNORM, both(90.0), metrics=kl)], model="a")
    lines: list[Line] = []
    for question in range(2):
        more = {"question_index": question, "prefills_paid": int(question == 0), "context_id": "c"}
        lines += [*made(FULL, {f"q{question}": [90.0]}, **more), *made(KNORM, {f"q{question}": [80.0]}, **more)]
    write_run(tmp_path / "q", lines, model="b")
    assert "How near the predictions stay to the full cache’s" in texts(opened(model="a"))
    app = opened(model="b")
    assert "Several questions on one context" in texts(app)
    paid = next(one.value for one in app.dataframe if "prefills" in one.value)
    assert list(paid["prefills"]) == [1, 1]


def test_odd_runs_open(tmp_path: Path) -> None:
    write_run(tmp_path / "no control", made(KNORM, both(50.0)), model="a")
    write_run(tmp_path / "alone", made(FULL, both(5.0)), model="b")
    write_run(tmp_path / "failed", [*made(FULL, both(90.0)), *made(KNORM, {"red": [None], "blue": [None]})], model="c")
    assert any("The full cache was not run here" in text for text in texts(opened(model="a")))
    opened(model="b")
    opened(model="c")


def test_without_runs_it_says_so() -> None:
    assert any("No runs" in text for text in texts(opened()))


def test_variants_of_the_summary_that_no_line_has_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [*made(FULL, both(90.0)), *made(KNORM, both(50.0))])
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    for row in [*summary["cells"], *summary["pairs"], *summary["ranks"]]:
        row.update({name: f"{row[name]} x" for name in ("variant", "a", "b") if name in row})
    edit_json(run / "summary.json", **summary)
    assert any("no line of them: full x, knorm head 0" in text.replace("\\", "") for text in texts(opened()))


def test_questions_without_prefills_say_so(tmp_path: Path) -> None:
    """A line may say which question it is of and not what it paid."""
    lines = [line for variant in (FULL, KNORM) for line in made(variant, both(90.0))]
    lines = [line.model_copy(update={"question_index": place % 4}) for place, line in enumerate(lines)]
    write_run(tmp_path / "a", lines)
    app = opened()
    assert any("prefills_paid" in text.replace("\\", "") for text in texts(app))
    assert {"Do methods fail on the same samples?", "Several questions on one context"} <= texts(app)


def test_levels_that_few_digits_merge_are_apart(tmp_path: Path) -> None:
    lines = made(FULL, both(90.0))
    for tau, score in ((-4.366201, 50.0), (-4.366202, 40.0)):
        lines += made(replace(KVZAP, level=tau), both(score))
    write_run(tmp_path / "a", lines)
    app = opened(levels="tau -4.366202")
    table = next(one.value for one in app.dataframe if "difference" in one.value)
    assert set(table["difference"].dropna()) == {-50.0}


def test_what_breaks_in_one_part_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("<b>*bad*</b>")

    write_run(tmp_path / "a", [*made(FULL, both(90.0)), *made(KNORM, both(50.0))])
    monkeypatch.setattr(benchmark_sections, "by_subset", broken)
    app = AppTest.from_file(str(PAGE), default_timeout=300).run()
    assert not app.exception
    (error,) = app.error
    assert error.value == f"The differences by subset cannot be shown: ZeroDivisionError: {plain('<b>*bad*</b>')}"
    assert "Do methods fail on the same samples?" in texts(app)


def test_leaving_out_trec_leaves_it_out_of_every_mean() -> None:
    wanted = columns(["trec", "qasper", "samsum"], 3, {"few shot": ["trec", "samsum"], "trec alone": ["trec"]})
    assert [(c.kind, c.name, c.subsets, c.of) for c in benchmark_sections.without_outlier(wanted)] == [
        (GROUP, "without trec", ("qasper", "samsum"), 2),
        (GROUP, "few shot without trec", ("samsum",), 1),
        (SUBSET, "qasper", ("qasper",), 1),
        (SUBSET, "samsum", ("samsum",), 1),
    ]
    named = columns(["trec", "qasper", "samsum"], 21, {"without_trec": ["qasper", "samsum", "lcc"]})
    assert [(c.name, c.subsets, c.of) for c in benchmark_sections.without_outlier(named)] == [
        ("without trec", ("qasper", "samsum"), 3),
        ("qasper", ("qasper",), 1),
        ("samsum", ("samsum",), 1),
    ]


def test_without_trec_the_means_are_the_others(tmp_path: Path) -> None:
    """Of a run whose facts have no group for it."""
    lines: list[Line] = []
    for score, variant in ((90.0, FULL), (60.0, KNORM)):
        scores = {"trec": [0.0 if variant is KNORM else 90.0] * 12, "qasper": [score] * 12, "samsum": [score - 10] * 12}
        lines.extend(made(variant, scores))
    write_run(tmp_path / "a", lines)
    table = next(
        one.value for one in opened(without="true", level="removed 0.5").dataframe if "difference" in one.value
    )
    told = {row["title"]: (row["score"], row["control"]) for row in table.to_dict("records") if row["level"]}
    assert told["without trec"] == (55.0, 85.0) and set(told) == {"without trec", "qasper", "samsum"}
