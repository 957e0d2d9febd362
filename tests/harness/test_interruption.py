"""A run in a process of its own that is killed, and a plugin file whose method and benchmark it uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.harness.driving import Runs, contents

ROOT = Path(__file__).parents[2]
#: ends its own process, without any warning, on the answer that KILL_AT counts
PLUGIN = """
import os, signal
from dataclasses import dataclass
from typing import ClassVar

import benchmarks.registry
from methods.registry import register
from tests.harness.toys import Carded, Toy

answers = []


class Deadly(Toy):
    name = "deadly"

    def score(self, sample, prediction):
        answers.append(prediction)
        if len(answers) == int(os.environ.get("KILL_AT", 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(sample, prediction)


@register
@dataclass(frozen=True)
class Mine(Carded):
    name: ClassVar[str] = "mine"


benchmarks.registry.register(Deadly)
"""
FLAGS = ("--benchmark", "deadly", "--method", "mine,kvzip_plus", "--removed", "0.5", "--limit", "4", "--subset", "red")


@pytest.fixture
def plugin(tmp_path: Path, forgetful: None) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return path


def test_a_killed_run_that_is_resumed_equals_an_uninterrupted_one(runs: Runs, plugin: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "run", *FLAGS, "--plugin", str(plugin), "--model", str(runs.model)]
    # 3 variants, 2 questions on each context: the 8th answer is within the first question of the second context
    killed = subprocess.run(
        [*command, "--out", str(tmp_path / "killed")],
        cwd=ROOT,
        env={**os.environ, "KILL_AT": "11", "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert runs(*FLAGS, "--plugin", plugin).code == 0
    whole = contents(runs.folder)
    runs.out = tmp_path / "killed"
    left = contents(runs.folder)
    assert set(left) == set(whole) - {"summary.json"}
    assert left["samples.jsonl"] == b"".join(whole["samples.jsonl"].splitlines(keepends=True)[:9])
    refused = runs(*FLAGS)
    assert (refused.code, "9 of 12 lines" in refused.err) == (2, True)
    assert runs(*FLAGS, "--resume").code == 0
    assert contents(runs.folder) == whole
    keys = [(row["sample_id"], row["variant"]) for row in runs.rows()]
    assert len(set(keys)) == len(keys) == 12


def test_a_plugins_method_has_lines_and_a_hash_of_its_own(runs: Runs, plugin: Path) -> None:
    assert runs(*FLAGS, "--plugin", plugin).code == 0
    assert {row["variant"] for row in runs.rows() if row["method"] == "mine"} == {"mine threshold tau=-2"}
    assert {row["benchmark"] for row in runs.rows()} == {"deadly"}
    path = runs.folder / "samples.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    plugin.write_text(PLUGIN + "# another method now\n", encoding="utf-8")
    refused = runs(*FLAGS, "--resume")
    assert (refused.code, "started with other method code" in refused.err) == (2, True)
    assert runs(*FLAGS, "--force").code == 0


def test_help_needs_no_torch() -> None:
    watch = (
        "import runpy, sys\n"
        "sys.argv = ['harness', '--help']\n"
        "try: runpy.run_module('harness', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", watch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("run", "methods", "benchmarks", "models", "profile", "train-kvzap"):
        assert command in done.stdout
