"""README and docs: links lead somewhere, commands exist as written, and quoted output is what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.exceptions import TyperException

from harness import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shell_blocks(page: Path) -> list[str]:
    """The page's blocks of commands, and of commands with what they print."""
    return [block for language, block in FENCE.findall(page.read_text(encoding="utf-8")) if language in ("", "sh")]


def commands(page: Path) -> list[str]:
    """The `kvprune` lines of a page's shell blocks, continuation lines joined, prompts and comments cut."""
    text = "\n".join(shell_blocks(page)).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").split("  #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line.startswith("kvprune ") and "..." not in line]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: no heading {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_flags_that_they_are_shown_with(page: Path) -> None:
    program = typer.main.get_command(cli.app)
    for line in commands(page):
        command, words = program, shlex.split(line)[1:]
        while subcommands := getattr(command, "commands", None):
            name, *words = words
            assert name in subcommands, f"{page.name}: no command {name} in {line}"
            command = subcommands[name]
        try:
            command.make_context(command.name, words)  # parses, and runs nothing
        except TyperException as error:
            pytest.fail(f"{page.name}: {line}: {error.format_message()}")


def test_the_readme_is_short_and_names_the_module_once() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 160
    assert text.count("python -m harness") == 1


def test_the_readme_quotes_what_compare_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (found for found in shell_blocks(README) if "$ kvprune compare" in found)
    command, *quoted = block.splitlines()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", shlex.split(command.removeprefix("$ ")))
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.splitlines()[: len(quoted)] == quoted
