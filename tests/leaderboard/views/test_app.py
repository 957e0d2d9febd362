"""The app and its server: pages open on the committed run without torch, folders are found, nobody is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from harness.cli.serve_leaderboard import APP, command, serve
from harness.errors import HarnessError
from leaderboard.views import PAGES
from leaderboard.views.layout import RESULTS
from leaderboard.views.layout import results as folders
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, both, lines_of, write_run
from tests.leaderboard.conftest import Page

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PAGES)
def test_each_page_opens_on_the_committed_run(page: Page, name: str) -> None:
    assert page(name, COMMITTED).title[0].value


def test_the_app_opens_with_its_first_page_without_torch() -> None:
    code = (
        "import sys\nfrom streamlit.testing.v1 import AppTest\n"
        f"app = AppTest.from_file({str(APP)!r}, default_timeout=120).run()\n"
        "assert not app.exception and app.title[0].value == 'KV-cache pruning, measured'\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env={**os.environ, RESULTS: str(COMMITTED)})


def test_folders_are_arguments_that_win_over_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder's name may hold the mark that separates folders in a variable."""
    odd, other = tmp_path / f"a{os.pathsep}b", tmp_path / "other"
    odd.mkdir()
    line = command(None, "localhost", browser=True, results=[odd, other])
    assert line[line.index("--") :] == ["--", str(odd), str(other)]
    app, view, test = str(APP), str(ROOT / "leaderboard" / "views" / "overview.py"), "pytest"
    for variable, argv, found in (
        (str(COMMITTED), [app, *line[line.index("--") + 1 :]], [odd, other]),
        (str(COMMITTED), [view, *line[line.index("--") + 1 :]], [odd, other]),
        (str(COMMITTED), [app], [COMMITTED]),
        (str(COMMITTED), [test, str(other)], [COMMITTED]),  # arguments of somebody else
        (f"{other}{os.pathsep}{odd.parent}", [test], [other, tmp_path]),
        (str(odd), [test], [odd]),
        ("", [test], [Path("results")]),
    ):
        monkeypatch.setenv(RESULTS, variable)
        monkeypatch.setattr(sys, "argv", argv)
        assert folders() == found


def test_a_run_in_a_folder_of_any_name_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / f"a{os.pathsep}b"
    write_run(folder / "run", [*lines_of(FULL, both(100.0)), *lines_of(KNORM, both(60.0))])
    monkeypatch.setattr(sys, "argv", [str(APP), str(folder), str(folder / "run")])
    app = AppTest.from_file(str(APP), default_timeout=120).run()
    assert not app.exception and not app.error and not app.info
    assert any("1 run: run" in caption.value for caption in app.caption)


def test_the_server_ends_with_the_command() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "harness", "leaderboard", str(COMMITTED), "--port", str(port), "--no-browser"]
    board = subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while board.poll() is None and not _answers(port):
            time.sleep(0.2)
        board.send_signal(signal.SIGTERM)
        assert board.wait(timeout=120) is not None
        with pytest.raises(ProcessLookupError):  # nobody of its session is left
            os.killpg(board.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(board.pid, signal.SIGKILL)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("localhost", port)) == 0


def test_streamlit_is_told_port_and_address_and_asks_nobody_for_an_address() -> None:
    line = command(8600, "localhost", browser=False)
    told = dict(zip(line[5::2], line[6::2], strict=False))
    assert (told["--server.port"], told["--server.headless"]) == ("8600", "true")
    assert told["--server.showEmailPrompt"] == "false"
    assert "--server.port" not in command(None, "localhost", browser=True)
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert settings["server"]["showEmailPrompt"] is False and settings["browser"]["gatherUsageStats"] is False


def test_an_unusable_address_and_a_port_in_use_are_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"--address 'no\.such\.host\.invalid' cannot be"):
        serve([tmp_path], address="no.such.host.invalid", browser=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(HarnessError, match=f"--port {port} is taken; give another"):
            serve([tmp_path], port, "127.0.0.1", browser=False)
