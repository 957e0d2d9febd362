"""The command ``check-method``: its table, its exit codes, and the same checks as a pytest test elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.conformance import CHECKS, Outcome, prepare, print_outcomes
from tests.harness.driving import Ran

ROOT = Path(__file__).parents[3]
PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from methods.base import Method
from methods.registry import register

@register
@dataclass(frozen=True)
class Mine(Method):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "from a file"

    def score(self, seen):
        return {score}
"""
GOOD, BAD = "seen.values.float().norm(dim=-1)", "seen.values.float().norm(dim=-1)[:, 1:]"

pytestmark = pytest.mark.usefixtures("forgetful")


def plugin(folder: Path, score: str) -> Path:
    path = folder / "mine.py"
    path.write_text(PLUGIN.format(score=score))
    return path


def test_a_good_plugin_gets_a_table_and_exit_code_0(cli: Callable[..., Ran], tmp_path: Path) -> None:
    done = cli("check-method", "mine", "--plugin", plugin(tmp_path, GOOD))
    assert (done.code, done.err) == (0, "")
    assert "mine on random weights, tiny-llama: 3 layers, 9 query and 3 KV heads" in done.out
    for check in CHECKS:
        assert f" {check.name} " in done.out
    assert "0 failed" in done.out and "prunes in phase prefill only" in done.out


@pytest.mark.parametrize("kept", [0.25, 0.75])
def test_scores_of_two_values_pass(cli: Callable[..., Ran], tmp_path: Path, kept: float) -> None:
    """Their median is one of the two; as a threshold the smaller would remove nothing."""
    norms = "seen.values.float().norm(dim=-1)"
    score = f"({norms} > {norms}.quantile({1 - kept}, dim=-1, keepdim=True)).float()"
    done = cli("check-method", "mine", "--plugin", plugin(tmp_path, score))
    assert (done.code, done.err) == (0, ""), done.out
    assert "0 failed" in done.out


def test_each_outcome_is_printed_before_the_next_check_runs(capsys: pytest.CaptureFixture[str]) -> None:
    suite = prepare("knorm")

    def watched() -> Iterator[Outcome]:
        for number, outcome in enumerate(suite.outcomes()):
            assert len(out := capsys.readouterr().out) > 0 and ("passed" in out) == (number > 0)
            yield outcome
            if number == 2:
                return

    assert print_outcomes(suite.title, watched()) == 0
    assert capsys.readouterr().out.endswith("3 passed, 0 failed, 0 skipped\n")


def test_a_failed_check_is_exit_code_1_with_its_reason(cli: Callable[..., Ran], tmp_path: Path) -> None:
    done = cli("check-method", "mine", "--plugin", plugin(tmp_path, BAD))
    assert (done.code, done.err) == (1, "")
    assert "scores: score on tiny-llama" in done.out and "expected the shape [3, 68], got [3, 67]" in done.out
    assert "1 failed" in done.out and "needs scores to pass" in done.out


def test_the_shape_of_a_model_can_be_asked_for(cli: Callable[..., Ran], model_folder: Path, tmp_path: Path) -> None:
    done = cli("check-method", "mine", "--plugin", plugin(tmp_path, GOOD), "--model", model_folder)
    assert done.code == 0 and str(model_folder) in done.out.replace("\n", "")


def test_another_repository_has_the_checks_as_tests(tmp_path: Path) -> None:
    plugin(tmp_path, BAD)
    (tmp_path / "test_mine.py").write_text(
        "from harness.conformance import conformance_tests\n\ntest_mine = conformance_tests('mine', plugin='mine.py')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "test_mine[scores]" in done.stdout and "expected the shape [3, 68], got [3, 67]" in done.stdout
    assert "1 failed, 4 passed" in done.stdout and "harness/conformance" not in done.stdout
