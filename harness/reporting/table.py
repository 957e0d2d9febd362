"""Tables of text, as every format takes them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Table:
    """Rows of text under a header. ``left`` columns are aligned to the left; a line goes before the rows ``breaks``."""

    title: str
    header: list[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)
    breaks: tuple[int, ...] = ()
    captions: list[str] = field(default_factory=list)
