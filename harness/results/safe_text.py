"""Text of strangers made fit to show: result files may hold anything, and no message or page may obey it."""

from __future__ import annotations

import unicodedata
from typing import Any

#: longest value that a message quotes
SHOWN = 60
#: marks that turn the direction of all text after them
_TURNING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}


def printable(text: object, most: int | None = None) -> str:
    """The first ``most`` characters on one line, each that no terminal shows as a character written as an escape."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in str(text)[:most])


def quoted(value: object) -> str:
    """A value as messages quote it: short, in ASCII, without control characters; of a list or object only its size."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    text = ascii(value[: 2 * SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def quoted_name(name: str) -> str:
    """A file's name, quoted only where it is not short printable ASCII."""
    return name if name.isascii() and name.isprintable() and len(name) <= 2 * SHOWN else quoted(name)


def clean(value: Any) -> Any:
    """A JSON value whose texts, keys included, hold no control mark, turned direction or half character. Line ends
    and tabs stay."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(map(_cleaned, value))
    if isinstance(value, dict):
        return {clean(name): clean(one) for name, one in value.items()}
    return [clean(one) for one in value] if isinstance(value, list | tuple) else value


def _cleaned(mark: str) -> str:
    turned = ord(mark) in _TURNING
    return "\ufffd" if turned or (unicodedata.category(mark) in ("Cc", "Cs") and mark not in "\n\t") else mark
