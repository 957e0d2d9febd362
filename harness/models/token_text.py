"""The text of each token of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: what a decoder gives for bytes that do not form a whole character
HALF = "\ufffd"
#: tokens that are held back for a character to become whole; one of four bytes takes four at most
MOST_HELD = 64


def pieces(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """The text that each token adds, so that the concatenation is what ``decode`` gives for all of them.

    A token is decoded behind those before it, since what it adds may depend on them: a space, or the rest of a
    character. Tokens that end within a character add "", the one that completes it adds the character.
    """
    found: list[str] = []
    before, start = 0, 0  # tokens of the piece before, whose text is known; first token that has no text yet
    for stop in range(1, len(ids) + 1):
        known = decode(ids[before:start])
        text = decode(ids[before:stop])
        if text.endswith(HALF) and stop < len(ids) and stop - start < MOST_HELD:
            continue
        found += [""] * (stop - start - 1) + [text[len(known) :]]
        before, start = start, stop
    return found
