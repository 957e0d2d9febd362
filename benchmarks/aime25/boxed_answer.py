r"""Final answers in a box: the last ``\boxed{...}`` of a text, read as a whole number. Uses only the standard library.

Only a closed box counts, or one around a bare number (``\boxed 7``), and nothing outside it is ever read: a number in
the running text is not an answer.
"""

from __future__ import annotations

import re

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
#: a box without braces, around all that is written together with its digits: more than TeX would put in it
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=[0-9])([^\s{}$\\]{1,30}?)[.,;:]{0,3}(?=\s|\$|\\[)\]]|\Z)")
#: a brace, or a backslash with the character it escapes
_BRACE = re.compile(r"\\[\\{}]|[{}]")
#: spaces and marks that change how a number looks, not its value
_SPACING = re.compile(r"\\(?:[,;: ]|(?:q?quad|(?:neg)?thinspace|medspace|thickspace|enspace|(?:math)?strut)\b)|~|\\\\")
#: commands that change how what follows looks
STYLES = (
    r"left|right|(?:display|text|script|scriptscript)style|limits|bf|rm|it|sf|tt|em|sl|(?:bf|md)series|(?:it|up|sl|sc)shape|(?:rm|sf|tt)family"
    r"|boldmath|tiny|scriptsize|footnotesize|small|normalsize|[lL]arge|LARGE|[hH]uge"
)
_STYLE = re.compile(rf"\\(?:{STYLES})(?![A-Za-z])")
#: characters without a width
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
#: commands that take space and print nothing, and the one that sets a colour for what follows
_NOTHING = re.compile(r"\\(?:[hv]?phantom|color(?:\[[^\[\]]*\])?)\s*\{[^{}]*\}")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree\b|°")
#: commands that only change how their argument looks, and those that do it by another argument before it
_WRAPPERS = (
    r"text(?:bf|it|rm|sf|tt|sl|sc|up|md|normal)?|math(?:bf|rm|it|sf|tt|bb|cal|frak|scr|normal)|boldsymbol|bm|bold|emph|[mhf]box|boxed"
    r"|underline|operatorname|ensuremath"
)
_COLOURS = r"(?:text)?color|colorbox"
_WRAPPER = re.compile(rf"\\(?:(?:{_WRAPPERS})|(?:{_COLOURS})(?:\[[^\[\]]*\])?\s*\{{[^{{}}]*\}})\s*\{{([^{{}}]*)\}}")
_ARGUMENTS = re.compile(r"\([^()]*\)")
_LIST = re.compile(r"[,;]|\b(?:and|or)\b")
_LEAD = re.compile(r"(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*:?\s*", re.IGNORECASE)
_NUMBER = re.compile(
    r"\+?\s*([1-9][0-9]{0,2}(?:,[0-9]{3}){1,6}|[1-9][0-9]{0,2}(?: [0-9]{3}){1,6}|[0-9]{1,18})(?:\.0*)?(?![0-9,.])"
)
_UNIT = re.compile(r"(?:[A-Za-z]{2,}\.?|[A-Za-z]\.)(?:\s*\^\s*(?:[23]|\{\s*[23]\s*\}))?")
#: words after a number that make it another number, or several
_OTHER = (
    r"and|choose|cubed|dozen|e|factorial|hundred|i|million|billion|minus|mod|of|or|over|pi|plus|squared|thousand|times"
)
_NO_UNIT = re.compile(rf"(?:{_OTHER})(?![A-Za-z])", re.IGNORECASE)
#: a single letter that is a word of its own
_LETTER = re.compile(r"(?<![A-Za-z0-9])([A-Za-z])(?![A-Za-z.])")


def last_box(text: str) -> str | None:
    r"""What is in the last closed ``\boxed{...}`` or ``\fbox{...}``, braces inside counted, or bare after ``\boxed``;
    None without one.

    ``\{`` and ``\}`` are characters, not braces. A box that is cut off does not count, one inside another does.
    """
    *_, bare = None, *_BARE_BOX.finditer(text)
    boxes = {match.end() for match in BOX.finditer(text)}
    open_at: list[int] = []
    last: tuple[int, int] | None = None
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            open_at.append(match.end())
        elif match[0] == "}" and open_at:
            start = open_at.pop()
            if start in boxes and (last is None or start > last[0]):
                last = start, match.start()
    if bare and (last is None or bare.start() > last[0]):
        return bare[1]
    return text[last[0] : last[1]] if last else None


def whole_number(content: str) -> int | None:
    r"""The number of 0 or more that a box's content states; None if it states none, or something else as well.

    Read as the same number: ``70``, ``070``, ``70.0``, ``70.``, ``$70$``, ``\text{70}``, ``x = 70``, ``1{,}024``,
    ``1\,024``, ``70^\circ``, ``70\%``, ``\$70``, ``70\text{ units}``, ``70 cm``, ``\Large 70``,
    ``\textcolor{red}{70}``, ``\phantom{0}70``. Arithmetic is not done: ``140/2``, ``2^6`` and ``70 + 1`` are not
    numbers, and neither are ``70.5``, ``70 or 71`` and ``70\pi``.
    """
    text = _plain(content)
    if "=" in text:
        *left, text = text.split("=")
        if any(_LIST.search(_ARGUMENTS.sub("", part)) for part in left):
            return None
    text = _LEAD.sub("", text.strip(), count=1) if _LEAD.match(text.strip()) else text.strip()
    while len(text) > 1 and (text[0], text[-1]) in (("(", ")"), ("{", "}")):
        text = text[1:-1].strip()
    text = text.rstrip(",; ")
    number = _NUMBER.match(text)
    if number is None or not _is_unit(text[number.end() :]):
        return None
    return int(re.sub("[, ]", "", number[1]))


def visible(content: str) -> str:
    """The content without characters that have no width."""
    return _INVISIBLE.sub("", content)


def _plain(content: str) -> str:
    """The content without formatting; text that was separated from a number stays separated from it."""
    text = visible(content).replace("{,}", ",").replace("\\!", "").replace("\\$", " ").replace("\\%", "%")
    text = re.sub(r"\\[()\[\]]|\$", " ", text)
    text = _STYLE.sub("", _DEGREES.sub(" ", text))
    text = _SPACING.sub(" ", text)
    before = None
    while before != text:
        before, text = text, _NOTHING.sub(" ", _WRAPPER.sub(_unwrapped, text))
    return re.sub(r"\s+", " ", text).strip()


def _unwrapped(match: re.Match[str]) -> str:
    """The argument alone. Single letters in it get a full stop: a unit may be one letter, a factor is not a unit."""
    return " " + _LETTER.sub(r"\1.", match[1]) + " "


def _is_unit(rest: str) -> bool:
    """Whether what follows a number names a unit: words, a percent sign, or nothing."""
    rest = rest.strip(" ,;()")
    if rest in ("", ".", "%"):
        return True
    words = [word for word in re.split(r"\s*/\s*|\s+(?!\^)", rest) if word]
    return all(_UNIT.fullmatch(word) and not _NO_UNIT.match(word) for word in words)
