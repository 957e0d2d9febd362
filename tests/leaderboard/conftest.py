"""What the tests of the board share: a results folder and a cache of their own, and pages opened over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from leaderboard import views
from leaderboard.views.layout import RESULTS

#: opens a page by its name, over the test's results or another folder, with an address
Page = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(RESULTS, str(tmp_path / "results"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "results"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    def opened(name: str, over: Path | None = None, broken: bool = False, **address: str) -> AppTest:
        """``broken``: the page may say that something is wrong, as long as it opens."""
        if over:
            monkeypatch.setenv(RESULTS, str(over))
        app = AppTest.from_file(str(Path(views.__file__).with_name(f"{name}.py")), default_timeout=600)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        assert not app.exception and (broken or not app.error)
        return app

    return opened
