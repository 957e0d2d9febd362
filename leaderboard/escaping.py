"""Text of strangers made fit to show: result files may hold anything, and a page must neither break nor obey it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

#: everything that Streamlit's markdown gives a meaning to
_MARKED = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|$~:&\"'^=@])")
#: what markdown makes a link of even where its marks are escaped; a word joiner, which nobody sees, breaks it
_LINKED = re.compile(r"(?i)(?<=h)(?=ttps?:)|(?<=w)(?=ww\.)|(?<=.)(?=@)|(?<=x)(?=mpp:)|(?<=m)(?=ailto:)")
#: marks that turn the direction of all text after them
_TURNING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}
MOST = 300


def clean(value: Any) -> Any:
    """A JSON value whose texts, keys included, hold no control mark, turned direction or half character. Line ends
    and tabs stay."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {clean(name): clean(one) for name, one in value.items()}
    return [clean(one) for one in value] if isinstance(value, list | tuple) else value


def _shown(mark: str) -> str:
    turned = ord(mark) in _TURNING
    return "\ufffd" if turned or (unicodedata.category(mark) in ("Cc", "Cs") and mark not in "\n\t") else mark


def brief(text: object, most: int = MOST) -> str:
    """``text`` on one line, cleaned, cut where it is longer than ``most``."""
    line = " ".join(str(clean(str(text))).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def plain(text: object, most: int = MOST) -> str:
    """``text`` as Streamlit's markdown shows it letter by letter: no link, image, HTML, colour, formula or icon."""
    return _MARKED.sub(r"\\\1", _LINKED.sub("\u2060", brief(text, most)))
