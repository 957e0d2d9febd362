"""Text of strangers as Streamlit shows it letter by letter: a page must neither break nor obey it."""

from __future__ import annotations

import re

from harness.results.safe_text import clean

#: everything that Streamlit's markdown gives a meaning to
_MARKED = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|$~:&\"'^=@])")
#: what markdown makes a link of even where its marks are escaped; a word joiner, which nobody sees, breaks it
_LINKED = re.compile(r"(?i)(?<=h)(?=ttps?:)|(?<=w)(?=ww\.)|(?<=.)(?=@)|(?<=x)(?=mpp:)|(?<=m)(?=ailto:)")
MOST = 300


def brief(text: object, most: int = MOST) -> str:
    """``text`` on one line, cleaned, cut where it is longer than ``most``."""
    line = " ".join(str(clean(str(text))).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def plain(text: object, most: int = MOST) -> str:
    """``text`` as Streamlit's markdown shows it letter by letter: no link, image, HTML, colour, formula or icon."""
    return _MARKED.sub(r"\\\1", _LINKED.sub("\u2060", brief(text, most)))
