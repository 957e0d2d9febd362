"""The benchmark page opens on every kind of benchmark, and shows what the lines say."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from harness.board import RESULTS
from harness.results import Line
from tests.harness.made_runs import FULL, KEYDIFF, KNORM, both, write_run
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
    assert not app.exception
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
