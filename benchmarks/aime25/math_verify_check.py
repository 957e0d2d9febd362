"""A second opinion on boxed answers by math-verify. The only file that uses it; imported when first needed."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

#: longer boxes are prose
LONGEST = 100
#: what math-verify can evaluate quickly; it computes powers and factorials of any size
_QUICK = re.compile(
    r"(?:[A-Za-z0-9\s.,:=+\-*/(){}$%]|\\[,;:!%$ ()\[\]]"
    r"|\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it)|left|right|[dt]?frac|sqrt|cdot|times|div|quad|pi|circ|degree)(?![A-Za-z])"
    r"|\^(?=\{?\\circ))*"
)
_ONE_POWER = re.compile(r"\^(?:\{[0-9]\}|[0-9])(?![0-9^])")


def says_equal(content: str, gold: int) -> bool | None:
    r"""Whether math-verify accepts a box's content as ``gold``; None if it is not asked.

    It is asked only about short boxes that it can certainly evaluate (one power, with a one-digit exponent): its guards
    against endless evaluation are signal alarms, which work only in the main thread, so they are off. It sees only the
    box: of several boxes it would make a set.
    """
    quick = _ONE_POWER.sub("", content, count=1)
    if len(content) > LONGEST or not _QUICK.fullmatch(quick):
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
