"""docs/add-a-method.md: its code and its commands, run as they stand, in a folder of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import methods.registry
from harness import cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
CHECKS = [line for line in COMMANDS if " check-method " in line]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files in a folder that the commands run in; what they register is forgotten."""
    methods.registry.load_all()
    for table in ("_methods", "_broken"):
        monkeypatch.setattr(methods.registry, table, dict(getattr(methods.registry, table)))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name in ("vnorm",) or name.startswith("kvprune_plugin"):
            del sys.modules[name]


def harness(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a `kvprune ...` line in this process; its exit code."""
    words = shlex.split(command)
    assert words[0] == "kvprune"
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_the_page_has_the_files_and_commands_that_are_run_here() -> None:
    assert set(FILES) == {
        "vnorm.py", "pyproject.toml", "test_vnorm.py", "vpower.py", "vdecode.py", "echo.py", "funnel.py"
    }  # fmt: skip
    assert len(COMMANDS) == 9 and len(CHECKS) == 6
    assert len([line for line in FILES["vnorm.py"].splitlines() if line.strip()]) < 25


@pytest.mark.parametrize("command", [line for line in CHECKS if "--plugin" in line])
def test_each_method_of_the_page_passes_its_check(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = harness(command, monkeypatch)
    out = capsys.readouterr().out
    assert code == 0, out
    assert "0 failed" in out


def test_the_run_shows_the_method_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stored_model: str
) -> None:
    (command,) = (line for line in COMMANDS if " run " in line)
    assert harness(command, monkeypatch) == 0
    out = capsys.readouterr().out
    for row in ("vnorm head 0.5", "knorm head 0.5", "full"):
        assert re.search(rf"^│ {re.escape(row)} +│", out, re.MULTILINE), out
    (cells,) = re.findall(r"^│ vnorm head 0\.5 .*$", out, re.MULTILINE)
    assert "0.500" in map(str.strip, cells.split("│"))  # the measured removed fraction


def test_an_installed_package_offers_its_methods(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `pip install` leaves behind, without pip: the module and its metadata on the path."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"[{group}]\n{name} = {value}" for group, points in project["entry-points"].items()
             for name, value in points.items()]  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    methods.registry.load_all.cache_clear()
    (command,) = (line for line in CHECKS if "--plugin" not in line)
    code = harness(command, monkeypatch)
    out = capsys.readouterr().out
    assert code == 0 and "0 failed" in out, out
    assert methods.registry.names()[-1] == "vnorm" and methods.registry.get("vnorm").__module__ == "vnorm"


def test_the_pages_test_file_runs_under_pytest(folder: Path) -> None:
    (command,) = (line for line in COMMANDS if "pytest" in line)
    words = [sys.executable, *shlex.split(command)[1:], "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed, \d+ skipped", done.stdout)
