"""Each page opens on the committed run, without torch."""

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
from leaderboard import views
from leaderboard.views.layout import RESULTS, results
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, both, lines_of, write_run

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "leaderboard" / "views" / f"{name}.py" for name in views.PAGES]


@pytest.fixture(autouse=True)
def _on_committed_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RESULTS, str(COMMITTED))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_opens(page: Path) -> None:
    app = AppTest.from_file(str(page), default_timeout=120).run()
    assert not app.exception and not app.error
    assert app.title[0].value


def test_the_app_opens_with_its_first_page() -> None:
    app = AppTest.from_file(str(APP), default_timeout=120).run()
    assert not app.exception and not app.error
    assert app.title[0].value == "KV-cache pruning, measured"


def test_a_page_imports_no_torch() -> None:
    code = (
        "import sys, runpy\n"
        "from streamlit.testing.v1 import AppTest\n"
        f"AppTest.from_file({str(APP)!r}, default_timeout=120).run()\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_streamlit_is_told_port_and_address() -> None:
    line = command(8600, "localhost", browser=False)
    assert line[line.index("--server.port") + 1] == "8600"
    assert line[line.index("--server.headless") + 1] == "true"
    assert "--server.port" not in command(None, "localhost", browser=True)


def test_folders_are_arguments_that_win_over_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder's name may hold the mark that separates folders in a variable."""
    odd, other = tmp_path / f"a{os.pathsep}b", tmp_path / "other"
    odd.mkdir()
    line = command(None, "localhost", browser=True, results=[odd, other])
    assert line[line.index("--") :] == ["--", str(odd), str(other)]
    for app in (APP, ROOT / "leaderboard" / "views" / "overview.py"):
        monkeypatch.setattr(sys, "argv", [str(app), *line[line.index("--") + 1 :]])
        assert results() == [odd, other]  # and not the variable's, which is set here
    monkeypatch.setattr(sys, "argv", [str(APP)])
    assert results() == [COMMITTED]
    monkeypatch.setattr(sys, "argv", ["pytest", str(other)])  # arguments of somebody else
    assert results() == [COMMITTED]
    monkeypatch.setenv(RESULTS, f"{other}{os.pathsep}{odd.parent}")
    assert results() == [other, tmp_path]
    monkeypatch.setenv(RESULTS, str(odd))
    assert results() == [odd]
    monkeypatch.delenv(RESULTS)
    assert results() == [Path("results")]


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


def test_nobody_is_asked_for_an_address_before_the_board_opens() -> None:
    line = command(None, "localhost", browser=True)
    assert line[line.index("--server.showEmailPrompt") + 1] == "false"
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert settings["server"]["showEmailPrompt"] is False and settings["browser"]["gatherUsageStats"] is False


def test_an_address_that_is_none_and_a_port_in_use_are_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"--address 'no\.such\.host\.invalid' cannot be listened at"):
        serve([tmp_path], address="no.such.host.invalid", browser=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(HarnessError, match=f"--port {port} is taken; give another"):
            serve([tmp_path], port, "127.0.0.1", browser=False)
