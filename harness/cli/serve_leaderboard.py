"""Start the leaderboard: Streamlit in a process of its own."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from harness.errors import HarnessError

APP = Path(__file__).resolve().parents[2] / "leaderboard" / "app.py"


def command(port: int | None, address: str, browser: bool, results: Sequence[Path] = ()) -> list[str]:
    """The command line of Streamlit. Without a port it takes 8501 or the next free one. Folders are arguments, since
    no mark separates them in a variable that may not stand in their names."""
    return [
        *(sys.executable, "-m", "streamlit", "run", str(APP)),
        *("--server.address", address),
        *("--server.headless", str(not browser).lower()),
        *("--server.showEmailPrompt", "false"),  # it waits for an answer on a terminal, and ends without one
        *("--browser.gatherUsageStats", "false"),
        *("--client.toolbarMode", "viewer"),
        *(("--server.port", str(port)) if port else ()),
        *("--", *(str(path.resolve()) for path in results)),
    ]


def serve(results: Sequence[Path], port: int | None = None, address: str = "localhost", browser: bool = True) -> int:
    """Serve the board over ``results`` until it is stopped; Streamlit's exit code."""
    for path in results:
        if not path.is_dir():
            raise HarnessError(f"{path} is not a folder; give run folders, or folders of them (default: results)")
    if find_spec("streamlit") is None:
        raise HarnessError("the leaderboard needs streamlit; python -m pip install 'streamlit>=1.67'")
    _check_free(address, port)
    with _warming(results):
        server = subprocess.Popen(command(port, address, browser, results))
        before = signal.signal(signal.SIGTERM, lambda *_: server.terminate())  # who stops us stops the server
        try:
            return server.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            signal.signal(signal.SIGTERM, before)
            server.terminate()
            server.wait()


def _check_free(address: str, port: int | None) -> None:
    """What a server would end of without saying what to do. Port 0 is any free one."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            one.bind(place)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise HarnessError(f"--port {port} is taken; give another, or none for the next free one") from error
        raise HarnessError(
            f"--address {address!r} cannot be listened at ({error}); give localhost, 0.0.0.0 or an address of this "
            "machine"
        ) from error


@contextmanager
def _warming(results: Sequence[Path]) -> Iterator[None]:
    """Boards are made in a process beside the server, so that a reader finds most of them made."""
    line = [sys.executable, "-m", "leaderboard.prebuild", *(str(path.resolve()) for path in results)]
    process = subprocess.Popen(line, cwd=APP.parents[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
