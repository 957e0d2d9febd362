"""Text of models that think first: the answer is what follows the reasoning."""

from __future__ import annotations

#: known (start, end) tags of reasoning; an answer follows the last end tag
TAGS = (
    ("<think>", "</think>"),
    ("<thought>", "</thought>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)


def after_thought(text: str, thinking: bool) -> str:
    """What follows the last end-of-thought tag: the only text that is scored.

    Empty if the reasoning is still open, since the model never got to an answer: there is no end tag although it was
    set to ``thinking``, or a start tag follows the last end. Idempotent.
    """
    last = max((text.rfind(end) + len(end) for _, end in TAGS if end in text), default=0)
    rest = text[last:]
    still_open = any(start in rest for start, _ in TAGS) or (thinking and not last)
    return "" if still_open else rest
