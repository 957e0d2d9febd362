"""What the tests of pages share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from leaderboard.views.layout import RESULTS


@pytest.fixture
def page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], AppTest]:
    """Opens the test module's ``PAGE`` over a results folder, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def opened(results: Path) -> AppTest:
        monkeypatch.setenv(RESULTS, str(results))
        app = AppTest.from_file(str(request.module.PAGE), default_timeout=120).run()
        assert not app.exception and not any("cannot be shown" in error.value for error in app.error)
        return app

    return opened
