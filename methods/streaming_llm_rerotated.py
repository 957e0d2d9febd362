"""StreamingLLM as published: positions are counted inside the cache."""

from dataclasses import dataclass
from typing import ClassVar

from methods.registry import register
from methods.streaming_llm import StreamingLLM


@register
@dataclass(frozen=True)
class StreamingLLMRerotated(StreamingLLM):
    """Keeps the same pairs as :class:`StreamingLLM`, and closes the gap between the sinks and the newest: k kept pairs
    are at positions 0 to k - 1 and the next token at k, in every layer without a sliding window.

    Xiao et al., arXiv 2309.17453, section 3.2. There keys are cached before RoPE and rotated in each step; here the
    only the sinks are rotated, by the width of the gap, which gives the same differences of positions.
    """

    name: ClassVar[str] = "streaming_llm_rerotated"
    summary: ClassVar[str] = "the same pairs, positions counted inside the cache, as in the paper"
    positions: ClassVar[str] = "cache"
