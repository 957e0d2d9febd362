"""Text of strangers as a page shows it: letters alone."""

from __future__ import annotations

import pytest

from harness.results.safe_text import clean
from leaderboard.escaping import plain

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![picture](https://evil.example/x.png)",
    "[click](https://evil.example)",
    "https://evil.example/path",
    ":red[painted] :material/delete: :smile:",
    "$x^2$ $$y$$",
    "**bold** _slanted_ `code` ~~gone~~",
    "# title",
    "| a | b |",
    "\u202eright to left\u202c",
    "null\x00byte \x1b[31m \x07",
    "half \ud800 character",
    "long " * 400,
    "=HYPERLINK(1)",
    "{{7*7}} %s ${x} &amp; &#60;b&#62;",
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_plain_text_has_no_mark_left(text: str) -> None:
    shown = plain(text)
    shown.encode()  # a half character cannot be sent
    for place, mark in enumerate(shown):
        if mark in "`*_{}[]()<>#!|$~:&":
            assert place and shown[place - 1] == "\\", shown
    assert len(shown) < 700 and "\x00" not in shown and "\u202e" not in shown


def test_clean_leaves_ordinary_text_alone() -> None:
    value = {"a": ["Ünïcödé 漢字 עברית 👍🏽 ≈", "two\nlines\t", 1, None, 0.5, True]}
    assert clean(value) == value
