"""A second opinion on boxed answers by math-verify. The only file that uses it; imported when first needed."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

from benchmarks.aime25.boxed_answer import STYLES, visible

#: longer boxes are prose
LONGEST = 100
#: what math-verify can evaluate quickly; it computes powers and factorials of any size
_QUICK = re.compile(
    r"(?:[A-Za-z0-9\s.,:=+\-*/(){}$%]|\\[,;:!%$ ()\[\]]"
    r"|\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it)|[mf]box|left|right)(?![A-Za-z])"
    r"|\\(?:[dt]?frac|sqrt|cdot|times|div|quad|pi|circ|degree)(?![A-Za-z])"
    rf"|\\(?:{STYLES})(?=\s+[^\\\s])"
    r"|\^(?=\{?\\circ))*"
)
_ONE_POWER = re.compile(r"\^(?:\{[0-9]\}|[0-9])(?![0-9^])")

#: a number of up to four digits, and whatever commands but few: none may compute something large from it
_MARKS = r"(?:\\(?!(?:i*|o)int|exp|[Gg]amma)[A-Za-z]+|\\[^A-Za-z0-9]|[^\\0-9^_!])*"
_ONE_NUMBER = re.compile(rf"(?!(?:.*\\[A-Za-z]){{3}}){_MARKS}[0-9]{{1,4}}{_MARKS}", re.DOTALL)


def says_equal(content: str, gold: int, unread: bool = False) -> bool | None:
    r"""Whether math-verify accepts a box's content as ``gold``; None if it is not asked.

    It is asked only about short boxes that it can certainly evaluate (one power, with a one-digit exponent): its guards
    against endless evaluation are signal alarms, which work only in the main thread, so they are off. It sees only the
    box: of several boxes it would make a set. Commands that are not known to be harmless are left to it where our own
    reading finds no number (``unread``), around a single short one.
    """
    content = visible(content)
    quick = _ONE_POWER.sub("", content, count=1)
    if len(content) > LONGEST or not (_QUICK.fullmatch(quick) or (unread and _ONE_NUMBER.fullmatch(content))):
        return None
    parse, verify = _functions()
    try:
        found = parse(rf"\boxed{{{content}}}", parsing_timeout=None)
        return bool(verify(parse(str(gold), parsing_timeout=None), found, timeout_seconds=None))
    except Exception:  # whatever its parsers raise counts as no opinion
        return None


@cache
def _functions() -> tuple[Any, Any]:
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of each call without a timeout
    from math_verify import parse, verify

    return parse, verify
