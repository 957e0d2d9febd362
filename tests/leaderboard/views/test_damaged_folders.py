"""The board over folders that strangers damaged: it opens, shows what can be shown, and lists the rest, with why."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderboard.data.library import open_library
from leaderboard.views import PAGES
from tests.harness.driving import COMMITTED
from tests.harness.validation.damages import DAMAGES, OUTSIDE, SCRIPT, damaged, good_run
from tests.leaderboard.conftest import Page


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return good_run(COMMITTED, tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="session")
def every(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one run folder for each damage."""
    scratch, results = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("results")
    for number, name in enumerate(DAMAGES):
        place = scratch / f"{number:03d}"
        place.mkdir()
        damaged(good, place, name).rename(results / f"{number:03d}")
    return results


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_listed_and_hurts_no_other(good: Path, tmp_path: Path, name: str) -> None:
    place = tmp_path / "place" / "damaged"
    place.mkdir(parents=True)
    run = damaged(good, place, name)
    found = open_library([good, place])
    there = {entry.path for entry in found.entries}
    assert good in there
    assert len(found.broken) == (run not in there)
    assert run not in there or not DAMAGES[name].left_out
    assert all(one.reason and one.reason.isprintable() for one in found.broken)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_on_all_of_them(
    every: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, page: Page, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache of all"))
    app = page(name, every, broken=True)
    broken = open_library([every]).broken
    assert app.title[0].value and len(broken) >= 50
    if name != "published":  # it shows no runs
        listed = next(one.value for one in app.dataframe if set(one.value.columns) == {"folder", "why"})
        assert len(listed) == len(broken)
    shown = " ".join(one.value for kind in (app.markdown, app.caption, app.subheader) for one in kind)
    assert SCRIPT not in shown and OUTSIDE not in shown
