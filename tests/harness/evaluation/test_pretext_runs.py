"""Pretexts of KVzip as a run sees them: labels, folders, refusals before the model loads, and stop tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.errors import HarnessError
from harness.evaluation import evaluator as runner
from harness.evaluation.evaluator import Evaluator
from tests.harness.driving import HALF, INFO, Runs, evaluate, some

TOY = ("--benchmark", "toy", "--subset", "red", "--limit", "1", "--removed", "0.5")
TEXT = "instruction: |-\n\n\n  Translate it.\ntarget: |-\n  the translation\n"


def labels(*options: str, **more: Any) -> list[str]:
    planned = plan(RunConfig(method=("kvzip", "kvzip_plus"), removed=HALF, option=options, **more), INFO).planned
    return [one.variant.label for one in planned[1:]]


def test_pretexts_are_variants_with_labels_of_their_own() -> None:
    names = ("repeat", "summary", "questions")
    assert labels(*(f"kvzip.pretext={name}" for name in names), "kvzip_plus.pretext=summary") == [
        "kvzip global 0.5",
        "kvzip global 0.5 pretext=summary",
        "kvzip global 0.5 pretext=questions",
        "kvzip_plus global 0.5 pretext=summary",
    ]
    assert labels() == ["kvzip global 0.5", "kvzip_plus global 0.5"]


def test_a_file_shows_by_its_stem_and_other_texts_are_another_variant(tmp_path: Path) -> None:
    path, other = tmp_path / "translate.yaml", tmp_path / "other" / "translate.yaml"
    other.parent.mkdir()
    path.write_text(TEXT, encoding="utf-8")
    other.write_text("# the same texts\n" + TEXT, encoding="utf-8")
    options = (f"kvzip.pretext={path}", f"kvzip.pretext={other}")
    same = labels(*options)
    assert len(same) == 2 and same[0].startswith("kvzip global 0.5 pretext=translate@")
    other.write_text(TEXT.replace("the translation", "another one"), encoding="utf-8")
    first, second, _ = labels(*options)
    assert first == same[0] != second and second.startswith("kvzip global 0.5 pretext=translate@")


def test_a_run_with_a_file_records_no_path_and_other_texts_have_a_folder_of_their_own(
    runs: Runs, toys: None, tmp_path: Path
) -> None:
    path = tmp_path / "translate.yaml"
    path.write_text(TEXT, encoding="utf-8")
    command = (*TOY, "--method", "kvzip,kvzip_plus")
    options = ("--option", f"kvzip.pretext={path},kvzip_plus.pretext={path},kvzip.pretext=summary")
    ran = runs(*command, *options)
    assert ran.code == 0, ran.err
    assert "pretext=translate@" in ran.out and "pretext=summary" in ran.out
    rows = runs.rows()
    expected = [(method, "ok") for method in ("full", "kvzip", "kvzip", "kvzip_plus")]
    assert [(row["method"], row["status"]) for row in rows] == expected
    assert len({row["variant"] for row in rows}) == 4
    assert json.loads(rows[1]["options"])["pretext"] in rows[1]["variant"]
    for file in runs.folder.iterdir():
        assert str(tmp_path) not in file.read_text("utf-8")
    assert "was complete already" in runs(*command, *options).out
    path.write_text(TEXT.replace("Translate", "Render"), encoding="utf-8")
    assert runs(*command, *options).code == 0
    assert len(runs.folders) == 2


@pytest.mark.parametrize("method", ["kvzip", "kvzip_plus,knorm", "all"])
@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot be read"), ("instruction: Repeat.", "lacks the key target")]
)
def test_a_bad_file_is_refused_before_the_model_loads_whatever_else_runs(
    runs: Runs, toys: None, unloaded: Callable[[], None], tmp_path: Path, method: str, content: str | None, reason: str
) -> None:
    unloaded()
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    name = "kvzip_plus" if "plus" in method else "kvzip"
    ran = runs(*TOY, "--method", method, "--option", f"{name}.pretext={path}")
    assert ran.code == 2 and runs.folders == []
    assert ran.err.startswith(f"error: {name}.pretext: {path}") and reason in ran.err
    assert "Traceback" not in ran.err


def test_compat_with_a_pretext_is_refused_with_the_reason() -> None:
    given = {"removed": HALF, "option": ("kvzip.pretext=summary",), "compat": "kvpress"}
    with pytest.raises(HarnessError, match="has only the pretext repeat"):
        plan(RunConfig(method=("kvzip",), **given), INFO)
    beside = plan(RunConfig(method=("kvzip", "kvzip_plus"), **given), INFO)
    assert list(beside.skipped) == ["kvzip"] and "only the pretext repeat" in beside.skipped["kvzip"]
    assert [one.variant.label for one in beside.planned[1:]] == ["kvzip_plus global 0.5 compat=kvpress"]


def test_the_runs_stop_tokens_reach_the_context(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[Any] = []
    real = runner.prefill

    def watched(lm: Any, context: Any, *rest: Any) -> Any:
        contexts.append(context)
        return real(lm, context, *rest)

    monkeypatch.setattr(runner, "prefill", watched)
    running = evaluator("kvzip", removed=HALF, option=("kvzip.pretext=summary",))
    running.stop_ids = frozenset({7, 8})
    lines = evaluate(running, some(1))
    assert [line.status for line in lines] == ["ok", "ok"]
    assert [context.stop_ids for context in contexts] == [{7, 8}]


def test_a_pass_that_does_not_fit_marks_its_variants_alone_truncated(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = evaluator("kvzip", removed=HALF, option=("kvzip.pretext=repeat", "kvzip.pretext=questions"))
    context = running.prompts.context(some(1)[0].sample.context)
    monkeypatch.setattr(running.lm.config, "max_position_embeddings", 2 * len(context.ids) + 60)
    lines = evaluate(running, some(1))
    assert [line.status for line in lines] == ["ok", "ok", "truncated"]
    assert "an extra pass needs" in (lines[2].reason or "")
