"""Tables of text and sheets of them, as every format takes them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Table:
    """Rows of text under a header. ``left`` columns are aligned to the left, and where room is short all but the first
    of them wrap between words; a line goes before the rows ``breaks``."""

    title: str
    header: list[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)
    breaks: tuple[int, ...] = ()
    captions: list[str] = field(default_factory=list)


@dataclass
class Sheet:
    """A titled page: lines before the tables, the tables, alarms and notes."""

    title: str
    lines: list[str]
    tables: list[Table]
    alarms: list[str]
    notes: list[str]
