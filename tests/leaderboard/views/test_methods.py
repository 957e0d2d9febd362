"""The page of methods: criteria, and a card of each."""

from __future__ import annotations

import re
from pathlib import Path

from streamlit.testing.v1 import AppTest

from harness.results.method_cards import cards
from leaderboard.data.criteria import NOT_MEASURED
from tests.harness.driving import COMMITTED
from tests.leaderboard.conftest import Page
from tests.leaderboard.data.test_method_cards import with_plugin

HOSTILE = "evil](javascript:alert(1)) <img src=x onerror=alert(1)> $$x$$ :red[x]"


def headings(app: AppTest) -> list[str]:
    return [one.value for one in app.markdown if one.value.startswith("####")]


def test_the_page_shows_criteria_and_a_card_of_each_method(page: Page) -> None:
    app = page("methods", COMMITTED)
    table = app.dataframe[0].value.set_index("method")
    assert table.loc["streaming_llm head", "cost in prefill"] == "none"
    assert table.loc["kvzip global", "KL at 50% removed"] == NOT_MEASURED
    assert len(headings(app)) == len(cards())
    assert any("kvprune validate" in block.value for block in app.code)


def test_without_any_run_the_cards_are_there(page: Page) -> None:
    app = page("methods")
    assert len(headings(app)) == len(cards())
    assert (app.dataframe[0].value["score at 50% removed"] == NOT_MEASURED).all()


def test_a_hostile_plugin_name_is_shown_letter_by_letter(page: Page, results: Path) -> None:
    heading = next(one for one in headings(page("methods", with_plugin(results, HOSTILE))) if "evil" in one)
    live = re.sub(r"\\.", "", heading)  # what is escaped has no meaning
    assert "](" not in live and "<img" not in live and "$$" not in live and ":red[" not in live
    assert ":violet-badge[plugin]" in heading


def test_the_filter_leaves_the_chosen_methods_cards(page: Page) -> None:
    shown = headings(page("methods", COMMITTED, method="knorm"))
    assert [one.replace("\\", "") for one in shown] == ["#### full", "#### knorm"]
