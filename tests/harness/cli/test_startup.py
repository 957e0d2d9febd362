"""What commands import: a table must not wait for torch, nor a run for what only other commands need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.harness.driving import COMMITTED, ROOT

#: libraries that take a good part of a second each
HEAVY = ("torch", "transformers", "datasets", "lm_eval", "streamlit", "sklearn", "skorch", "altair")
PROBE = """
import contextlib, io, json, sys
from harness import cli
for line in json.loads(sys.argv[1]):
    sys.argv = ["kvprune", *line]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main()
        except SystemExit as stop:
            assert not stop.code, (line, stop.code)
print(json.dumps([name for name in {heavy} if name in sys.modules]))
"""


def imported(*commands: tuple[str, ...]) -> list[str]:
    """Of the heavy libraries, those that a fresh process has imported after these commands."""
    probe = PROBE.replace("{heavy}", repr(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", probe, json.dumps(commands)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_listing_and_reading_commands_import_nothing_heavy() -> None:
    run = str(COMMITTED)
    reading = (("report", run), ("validate", run), ("compare", run), ("rescore", run, "--check"))
    helps = (("--help",), ("run", "--help"), ("check-method", "--help"))
    assert imported(*helps, ("methods",), ("methods", "kvzip"), ("benchmarks",), ("models",), *reading) == []


def test_a_run_imports_nothing_that_only_other_commands_need(model_folder: Path, tmp_path: Path) -> None:
    asked = ("--benchmark", "needles", "--subset", "keys_1", "--length", "256", "--limit", "2", "--max-new-tokens", "1")
    where = ("--model", str(model_folder), "--out", str(tmp_path))
    assert imported(("run", "--method", "knorm", "--removed", "0.5", *asked, *where)) == ["torch", "transformers"]
