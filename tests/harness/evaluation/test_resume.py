"""What a second start does: a complete run is read, an incomplete one resumes where it ended, or starts over."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.evaluation import execute, provenance
from harness.results.run_folder import RunFolder
from tests.harness.driving import QUICK, ROOT, Ran, Runs, contents, shorten
from tests.harness.toys import Toy

pytestmark = pytest.mark.usefixtures("toys")


def pack(folder: Path) -> None:
    """Leave ``samples.jsonl.gz`` in place of ``samples.jsonl``."""
    path = folder / "samples.jsonl"
    (folder / "samples.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


@pytest.fixture
def made(runs: Runs) -> Ran:
    """A complete run of QUICK."""
    done = runs(*QUICK)
    assert done.code == 0
    return done


def refused(runs: Runs, message: str, *more: str) -> None:
    """That a run of QUICK is refused with this message, and writes nothing."""
    before = contents(runs.folder)
    done = runs(*QUICK, *more)
    assert (done.code, done.out, done.err.startswith("error: ")) == (2, "", True)
    assert message in done.err
    assert contents(runs.folder) == before


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize("change", [lambda folder: None, without("summary.json"), pack], ids=["as it is", "bare", "gz"])
def test_a_complete_run_prints_its_table_without_the_model(
    runs: Runs, made: Ran, unloaded: Callable[[], None], change: Callable[[Path], None]
) -> None:
    whole = contents(runs.folder)
    change(runs.folder)
    unloaded()
    for more in ((), ("--resume",)):
        again = runs(*QUICK, *more)
        assert (again.code, again.err) == (0, "")
        assert again.out == made.out.replace("(complete)", "(was complete already)")
    assert contents(runs.folder) == whole or change is pack


@pytest.mark.parametrize("lines", [0, 7])
def test_an_incomplete_run_needs_a_flag(runs: Runs, made: Ran, unloaded: Callable[[], None], lines: int) -> None:
    shorten(runs, lines)
    unloaded()
    refused(runs, f"incomplete run ({lines} of 12 lines); add --resume to continue or --force to start over")


def test_a_half_written_last_line_counts_as_incomplete(runs: Runs, made: Ran) -> None:
    path = runs.folder / "samples.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    refused(runs, "11 of 12 lines")


@pytest.mark.parametrize(
    ("lines", "tail", "packed"), [(0, 0, False), (2, 25, False), (3, 0, True), (7, 25, True), (11, 25, False)]
)
def test_resuming_gives_what_an_uninterrupted_run_gives(
    runs: Runs, made: Ran, lines: int, tail: int, packed: bool
) -> None:
    before = contents(runs.folder)
    shorten(runs, lines)
    shorten(runs, -(-lines // 6), "histograms.jsonl")  # a context's comes before its first line
    for name in ("samples.jsonl", "histograms.jsonl"):
        whole = (runs.folder / name).read_bytes()
        (runs.folder / name).write_bytes(whole + before[name][len(whole) : len(whole) + tail])
    if packed:
        pack(runs.folder)
    assert runs(*QUICK, "--resume").code == 0
    assert contents(runs.folder) == before


def test_resuming_where_nothing_is_starts(runs: Runs) -> None:
    assert runs(*QUICK, "--resume").code == 0
    assert len(runs.rows()) == 12


def test_lines_without_memory_stay_as_they_are(runs: Runs) -> None:
    flags = ("--benchmark", "toy", "--method", "broken,knorm", "--option", "broken.how=memory", *QUICK[4:])
    runs(*flags)
    before = contents(runs.folder)
    shorten(runs, 6)
    assert runs(*flags, "--resume").code == 0
    assert contents(runs.folder) == before
    assert [row["status"] for row in runs.rows()][:3] == ["ok", "oom", "ok"]


def test_force_starts_over(runs: Runs, made: Ran) -> None:
    before = contents(runs.folder)
    rows = runs.rows()
    rows[0]["prediction"] = "not what the model said"
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (runs.folder / "samples.jsonl").write_text(text, encoding="utf-8")
    (runs.folder / "samples.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert runs(*QUICK, "--force").code == 0
    assert contents(runs.folder) == before


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_broken_line_in_the_middle_is_named(runs: Runs, made: Ran, more: tuple[str, ...]) -> None:
    path = runs.folder / "samples.jsonl"
    rows = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([*rows[:4], rows[4][:50] + "\n", *rows[5:]]), encoding="utf-8")
    refused(runs, f"{path}, line 5: ", *more)


def test_doubled_lines_are_refused(runs: Runs, made: Ran) -> None:
    path = runs.folder / "samples.jsonl"
    rows = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([*rows[:5], rows[0]]), encoding="utf-8")
    refused(runs, "doubled lines", "--resume")


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_newer_schema_is_refused(runs: Runs, made: Ran, unloaded: Callable[[], None], more: tuple[str, ...]) -> None:
    record = runs.json("run.json") | {"schema_version": 99}
    (runs.folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    unloaded()
    refused(runs, "schema_version 99; this release reads 1", *more)


def test_other_method_code_marks_a_complete_run_and_refuses_to_resume(
    runs: Runs, made: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = provenance.method_hash
    monkeypatch.setattr(provenance, "method_hash", lambda *given: real(*given) + "x")
    again = runs(*QUICK)
    assert (again.code, "stale: full, knorm, carded changed since this run was made" in again.out) == (0, True)
    shorten(runs, 5)
    refused(runs, "was started with other method code (", "--resume")


def test_stopping_a_run_says_how_to_go_on(runs: Runs) -> None:
    stopped = runs(*QUICK[:2], "--method", "broken", "--option", "broken.how=interrupt")
    assert (stopped.code, "--resume" in stopped.err, "Traceback" in stopped.err) == (130, True, False)
    assert runs.json("run.json")["schema_version"] == 1
    assert runs.rows() == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_says_how_to_continue(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    def end(*_: Any) -> None:
        os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    with monkeypatch.context() as patched:
        patched.setattr(Toy, "score", end)
        told = runs(*QUICK)
    assert (told.code, told.err.splitlines()[-1]) == (
        128 + signum,
        f"stopped by {signum.name}; continue with the same command and --resume (without --force)",
    )
    assert signal.getsignal(signum) == before
    assert runs(*QUICK, "--resume").code == 0


def test_two_processes_never_write_the_same_folder(
    runs: Runs, made: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with execute.alone(RunFolder(runs.folder)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))  # they need not share a cache folder
        for more in ((), ("--force",), ("--resume",)):
            refused(runs, f"another process is writing to {runs.folder}", *more)
    assert runs(*QUICK, "--force").code == 0


def test_a_file_system_without_locks_is_told_of_and_used(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    told = runs(*QUICK)
    assert (told.code, "on a file system without locks (No locks available); start no second" in told.err) == (0, True)


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
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return path


def test_a_killed_run_that_is_resumed_equals_an_uninterrupted_one(runs: Runs, plugin: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "run", *FLAGS, "--plugin", plugin, "--model", runs.model]
    # 3 variants, 2 questions on each context: the 11th answer is within the second question of the second context
    killed = subprocess.run(
        [*map(str, command), "--out", str(tmp_path / "killed")],
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
    stopped = runs(*FLAGS)
    assert (stopped.code, "9 of 12 lines" in stopped.err) == (2, True)
    assert runs(*FLAGS, "--resume").code == 0
    assert contents(runs.folder) == whole
    assert len({(row["sample_id"], row["variant"]) for row in runs.rows()}) == len(runs.rows()) == 12


def test_a_plugins_method_has_lines_and_a_hash_of_its_own(runs: Runs, plugin: Path) -> None:
    assert runs(*FLAGS, "--plugin", plugin).code == 0
    assert {row["variant"] for row in runs.rows() if row["method"] == "mine"} == {"mine threshold tau=-2"}
    assert {row["benchmark"] for row in runs.rows()} == {"deadly"}
    shorten(runs, 5)
    other = "    def score(self, seen):\n        return super().score(seen) / 2\n"
    plugin.write_text(PLUGIN.replace('"mine"\n', '"mine"\n\n' + other), encoding="utf-8")
    stopped = runs(*FLAGS, "--resume")
    assert (stopped.code, "started with other method code" in stopped.err) == (2, True)
    assert runs(*FLAGS, "--force").code == 0


@pytest.mark.parametrize(
    ("busy", "flags", "warned"), [(1.5, (), True), (1.0, (), False), (9.0, ("--threads", 1), False)]
)
def test_cores_that_are_busy_are_told_of(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, busy: float, flags: tuple[Any, ...], warned: bool
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("harness.cli.evaluate.load_average", lambda: busy * len(os.sched_getaffinity(0)))
    told = runs(*QUICK, *flags)
    assert (told.code, "give each its share with --threads" in told.err) == (0, warned)
    assert torch.get_num_threads() == (1 if flags else before)
    torch.set_num_threads(before)
