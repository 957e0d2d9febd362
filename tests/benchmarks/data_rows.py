"""A valid row of each benchmark that reads ``--data``, and where it looks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROWS: dict[str, dict[str, Any]] = {
    "aime25": {"id": "1", "question": "1 + 1?", "answer": 2},
    "multi-question": {"context": "Words.", "question": "Which?", "answers": ["a"]},
    "ruler": {"context": "c", "question": "q", "answer_prefix": "", "answer": "x", "task": "vt", "max_new_tokens": 3},
    "longbench": {"input": "q", "context": "c", "answers": ["a"], "length": 3, "all_classes": None},
    "fidelity:text": {"text": "words and words"},
}
ROWS["ruler-4k"], ROWS["longbench_e"] = ROWS["ruler"], ROWS["longbench"]


def data_of(name: str, folder: Path, content: bytes, subset: str = "hotpotqa") -> Path:
    """A file with this content where the benchmark looks for its rows; what to give as ``--data``."""
    folder.mkdir(exist_ok=True)
    path = folder / (f"{subset}.jsonl" if name.startswith("longbench") else "rows.jsonl")
    path.write_bytes(content)
    return folder if name.startswith("longbench") else path
