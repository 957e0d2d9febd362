"""Text of models that think first: what stands after the thought is the answer."""

from __future__ import annotations

#: (start, end) tags of a thought that are known; an answer stands after the last end tag
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

    Without such a tag: nothing where the model was set to ``thinking`` or has opened a thought, since it never got to
    an answer; else the whole text. Applied again to its own result it changes nothing.
    """
    last = max((text.rfind(end) + len(end) for _, end in TAGS if end in text), default=0)
    if last:
        return text[last:]
    return "" if thinking or any(start in text for start, _ in TAGS) else text
