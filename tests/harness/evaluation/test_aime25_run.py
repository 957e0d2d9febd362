"""``run --benchmark aime25`` on a tiny model: its defaults, flags, files and table, and what bad flags get."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

import benchmarks.registry
from benchmarks.base import Request, Sample, Score, Text
from harness.models import loading
from tests.harness.driving import Ran, Runs
from tests.harness.models.test_thinking import SWITCH
from tests.harness.toys import Toy, toy_sample

pytestmark = pytest.mark.usefixtures("toys")
PROBLEMS = [
    {"id": "sum", "question": "What is $20 + 22$? Count twice and once more, to be sure of it.", "answer": "42"},
    {"id": "week", "question": "How many days has a week that has neither a start nor an end?", "answer": "7"},
]


class Boxer(Toy):
    """Greedy answers to one problem that may be short."""

    name = "boxer"
    default_phase = "both"
    sampled: ClassVar[dict[str, float] | None] = None

    def samples(self, request: Request, text: Text) -> list[Sample]:
        one = toy_sample("red", 64, 0)
        return [Sample(**{**one.__dict__, "sampling": self.sampled})]


@pytest.fixture
def aime(runs: Runs, tmp_path: Path) -> Callable[..., Ran]:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS), encoding="utf-8")

    def call(*args: object) -> Ran:
        return runs("--benchmark", "aime25", "--data", path, *args)

    return call


SMALL = ("--method", "knorm,h2o,kvzip", "--keep-tokens", "40", "--max-new-tokens", "6")


@pytest.fixture
def refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Callable[[Ran], str]:
    monkeypatch.setattr(loading, "load_model", None)  # any use of it is a traceback

    def check(done: Ran) -> str:
        assert (done.code, done.out, "Traceback" in done.err) == (2, "", False), done
        assert runs.folders == []
        return done.err.removeprefix("error: ").strip()

    return check


def thinking_model(model: Path, folder: Path, template: str) -> Path:
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def test_lines_cells_record_and_table_say_how_the_answers_came_about(aime: Callable[..., Ran], runs: Runs) -> None:
    done = aime(*SMALL)
    assert done.code == 0
    rows = runs.rows()
    assert [(row["sample_id"], row["variant"], row["rollout"]) for row in rows] == [
        (f"aime25/{problem}", variant, rollout)
        for problem in ("sum", "week")
        for variant in ("full", "knorm head keep=40", "h2o head keep=40")
        for rollout in range(4)
    ]
    sampling = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    for row in rows:
        assert (row["phase"], row["thinking"], row["status"]) == ("both", False, "ok")
        assert (row["sampling"], row["max_new_tokens"]) == (sampling, 6)
        assert row["metrics"]["answered"] in (0, 1)
        assert row["removed_total"] == pytest.approx(1 - row["kept_pairs_total"] / row["cached_pairs_total"])
    record = runs.json("run.json")
    assert record["configuration"]["max_new_tokens"] == 6
    expected = {"max_new_tokens": [6], "benchmark_limit": 32_000, "rollouts": [4], "sampling": [sampling]}
    assert record["answers"]["aime25"] == expected
    assert record["unsupported"][0]["method"] == "kvzip"
    cells = [cell for cell in runs.json("summary.json")["cells"] if cell["subset"] is None]
    assert [(cell["method"], cell["n"], cell["rollouts"], cell.get("note")) for cell in cells] == [
        *((method, 2, 4, None) for method in ("full", "knorm", "h2o")),
        ("kvzip", 0, None, "prefill only"),
    ]
    for cell in cells[:3]:
        assert (cell["max_new_tokens"], cell["of_new_tokens"], cell["sampling"]) == (6, 32_000, sampling)
        assert set(cell["metrics"]) >= {"pass@1", "pass@1_se", "pass@4", "answered", "correct_rollout_3"}
        assert cell["floor"]
    assert "phase both; limit 6 of 32,000 new tokens; 4 rollouts at temperature 0.6, top_p 0.95, top_k 20" in done.out
    assert "thinking off" in done.out
    table = [[part.strip() for part in re.split("[│┃]", row)] for row in done.out.splitlines() if row[:1] in ("│", "┃")]
    first, *_, last = [place for place, row in enumerate(table) if "variant" in row]
    assert {"pass@1 ± se", "removed", "at end", "tokens", "at limit"} <= set(table[first])
    assert {"answered", "pass@4"} <= set(table[last])
    found = {row[1]: row for row in table[first : first + 5]}
    assert found["kvzip"][-2] == "prefill only" and set(found["kvzip"][2:-2]) <= {"", "-", "0"}
    assert found["full"][-2] == "floor"
    assert "not run: kvzip" not in done.out


def test_fewer_rollouts_leave_pass_at_4_open(aime: Callable[..., Ran], runs: Runs) -> None:
    done = aime(*SMALL, "--rollouts", "3")
    assert (done.code, "n/a" in done.out, "3 rollouts" in done.out) == (0, True, True)
    assert len(runs.rows()) == 2 * 3 * 3
    assert runs.json("run.json")["configuration"]["rollouts"] == 3
    assert {cell["metrics"]["pass@4"] for cell in runs.json("summary.json")["cells"] if cell["n"]} == {None}


def test_more_rollouts_begin_with_the_same_answers(aime: Callable[..., Ran], runs: Runs) -> None:
    found = []
    for count in ("2", "5"):
        aime(*SMALL, "--rollouts", count)
        rows = [row for folder in runs.folders for row in map(json.loads, (folder / "samples.jsonl").open())]
        found.append({(r["sample_id"], r["variant"], r["rollout"]): r["prediction"] for r in rows if r["rollout"] < 2})
        shutil.rmtree(runs.out)
    assert found[0] == found[1]
    assert len(found[0]) == 12


def test_the_limit_and_the_rollouts_belong_to_the_configuration(aime: Callable[..., Ran], runs: Runs) -> None:
    for more in ((), ("--rollouts", "2"), ("--max-new-tokens", "5"), ("--phase", "prefill")):
        assert aime("--method", "knorm", "--removed", "0.5", *SMALL[-2:], *more).code == 0
    assert len(runs.folders) == 4


def test_an_answer_limit_of_any_benchmark_can_be_changed(runs: Runs) -> None:
    done = runs("--benchmark", "toy", "--method", "knorm", "--removed", "0.5", "--limit", "1", "--max-new-tokens", "2")
    assert (done.code, "limit 2 new tokens" in done.out, "phase" in done.out) == (0, True, False)
    assert {(row["generated_tokens"], row["max_new_tokens"], row["phase"]) for row in runs.rows()} == {
        (2, 2, "prefill")
    }


def test_thinking_is_on_where_the_template_has_it(aime: Callable[..., Ran], runs: Runs, tmp_path: Path) -> None:
    model = thinking_model(runs.model, tmp_path / "Switch", SWITCH)
    done = aime(*SMALL, "--model", model)
    assert (done.code, "thinking on" in done.out) == (0, True)
    assert {row["thinking"] for row in runs.rows()} == {True}
    assert "knorm head keep=40 thinking" in {row["variant"] for row in runs.rows()}
    shutil.rmtree(runs.out)
    done = aime(*SMALL, "--model", model, "--thinking", "off")
    assert (done.code, "thinking off" in done.out) == (0, True)
    assert {row["thinking"] for row in runs.rows()} == {False}


def test_a_second_scorers_disagreements_are_listed(
    aime: Callable[..., Ran], runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = type(benchmarks.registry.get("aime25"))
    scores = iter([Score(0, {"answered": 1, "math_verify": 0}), Score(100, {"answered": 1, "math_verify": 0})])
    monkeypatch.setattr(cls, "score", lambda *_: next(scores, Score(0, {"answered": 0})))
    done = aime("--method", "full", *SMALL[-2:])
    assert "math_verify calls aime25/sum, full, rollout 0 right, which we took for wrong" in done.out
    assert "math_verify calls aime25/sum, full, rollout 1 wrong, which we took for right" in done.out
    assert [one["rollout"] for one in runs.json("summary.json")["disagreements"]] == [0, 1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "no sample fits model"),
        ((), "give a smaller --length or --max-new-tokens, or another --model"),
        ((*SMALL[-2:], "--thinking", "on"), "has no end-of-thought tag such as </think>; use --thinking off or auto"),
        ((*SMALL[-2:], "--length", "64"), "aime25 takes no --length (got 64): its problems have their own"),
        ((*SMALL[-2:], "--benchmark", "needles"), "(aime25: both, needles: prefill); give --phase"),
        (
            (*SMALL[-2:], "--method", "kvzip"),
            "kvzip: prefill only (the phase is both; give another --phase or --method)",
        ),
    ],
)
def test_bad_flags_are_refused(
    aime: Callable[..., Ran], refused: Callable[[Ran], str], flags: tuple[str, ...], message: str
) -> None:
    method = () if "--method" in flags else ("--method", "knorm")
    assert message in refused(aime(*method, *flags))


@pytest.mark.parametrize(
    ("template", "flags", "message"),
    [
        (
            "",
            ("--benchmark", "toy", "--rollouts", "4"),
            "--rollouts 4: toy answers greedily, so all rollouts would be the same; leave",
        ),
        ("", ("--benchmark", "boxer"), "a sampling temperature must be above 0, got 0.0"),
        (SWITCH, ("--benchmark", "toy", "--thinking", "on"), "toy forces the start of the answer"),
    ],
    ids=["rollouts", "temperature", "forced start"],
)
def test_what_sampling_and_thinking_do_not_go_with_is_refused(
    aime: Callable[..., Ran],
    runs: Runs,
    refused: Callable[[Ran], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    template: str,
    flags: tuple[str, ...],
    message: str,
) -> None:
    benchmarks.registry.register(Boxer)
    monkeypatch.setattr(Boxer, "sampled", {"temperature": 0.0})
    model = thinking_model(runs.model, tmp_path / "Thinker", template) if template else runs.model
    call = functools.partial(runs, "--method", "knorm") if flags else aime
    assert message in refused(call("--model", model, *(flags or (*SMALL, "--thinking", "off"))))


def test_benchmarks_of_one_default_phase_need_no_flag(runs: Runs) -> None:
    benchmarks.registry.register(Boxer)
    assert runs("--benchmark", "boxer", "--method", "knorm", "--removed", "0.5").code == 0
    assert {row["phase"] for row in runs.rows()} == {"both"}
    shutil.rmtree(runs.out)
    assert runs("--benchmark", "boxer,toy", "--method", "knorm", "--removed", "0.5", "--phase", "decode").code == 0
    assert {row["phase"] for row in runs.rows()} == {"decode"}


def test_mixed_runs_of_aime25_take_a_phase(aime: Callable[..., Ran], runs: Runs) -> None:
    flags = ("--benchmark", "toy", "--phase", "prefill", "--limit", "1", "--method", "knorm", "--removed", "0.5")
    done = aime(*flags, *SMALL[-2:])
    assert done.code == 0
    assert {(row["benchmark"], row["phase"]) for row in runs.rows()} == {("aime25", "prefill"), ("toy", "prefill")}
    assert re.search(r"aime25.*\n.*limit 6 of 32,000", done.out)
