"""The structure of the packages: which room may import which (``[tool.importlinter]``), and how many there are."""

from __future__ import annotations

import io
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from importlinter import cli

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize("contract", [contract["id"] for contract in CONTRACTS])
def test_imports_keep_the_contract(contract: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    told = io.StringIO()
    with redirect_stdout(told):
        broken = cli.lint_imports(limit_to_contracts=(contract,), no_cache=True, no_logo=True)
    assert not broken, told.getvalue()


@pytest.mark.parametrize(("package", "most"), [("harness", 16), ("leaderboard", 6)])
def test_a_package_has_few_rooms(package: str, most: int) -> None:
    rooms = [
        path
        for path in (ROOT / package).iterdir()
        if (path.suffix == ".py" and not path.name.startswith("__")) or (path / "__init__.py").is_file()
    ]
    assert len(rooms) <= most, sorted(path.name for path in rooms)


def test_no_import_is_hidden_from_the_contracts() -> None:
    """An import for the type checker alone would hide a circle."""
    files = [
        path
        for package in ("harness", "leaderboard", "benchmarks", "methods")
        for path in (ROOT / package).rglob("*.py")
    ]
    assert [path.name for path in files if "TYPE_CHECKING" in path.read_text("utf-8")] == []
