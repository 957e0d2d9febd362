"""Pretexts: what a reconstruction method has the model do with its context, so that it can watch the attention.

A pretext of the user's own is a YAML file with two texts:

    instruction   follows the context, unchanged; KVzip's own begins with an empty line
    target        what the model is then assumed to answer; ``context`` means the context itself, chunk by chunk
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from methods import yaml_files
from methods.base import Generated, MethodError

#: the target that stands for the context itself
CONTEXT = "context"
KEYS = ("instruction", "target")
NEEDED = f"the keys {' and '.join(KEYS)}, each with a text"


class Pretext(NamedTuple):
    """The task of an extra pass.

    later   the instruction for every chunk but the first
    target  a text or an answer; None: the context itself, in chunks
    """

    instruction: str
    later: str
    target: str | Generated | None


def is_file_name(text: str) -> bool:
    return text.endswith((".yaml", ".yml"))


def is_bound_name(text: str) -> bool:
    """Whether a text is what :func:`bound_name` makes."""
    return re.fullmatch(r"[^/\\]*@[0-9a-f]{8}", text) is not None


def bound_name(path: Path, pretext: Pretext) -> str:
    """How a variant names a file: its stem and the beginning of the hash of what it says."""
    return f"{path.stem}@{digest(pretext)[:8]}"


def digest(pretext: Pretext) -> str:
    """SHA-256 of a pretext's texts."""
    return hashlib.sha256(repr(pretext).encode()).hexdigest()


def read(path: Path, label: str) -> Pretext:
    """The pretext in a file. One that cannot be read or says anything else: :class:`MethodError` with its path."""
    what = f"{label}: {path}"
    try:
        content = yaml_files.read(path)
    except yaml_files.YamlFault as error:
        raise MethodError(f"{what} {error}; give a YAML file with {NEEDED}") from error
    if not isinstance(content, dict):
        raise MethodError(f"{what} must hold {NEEDED}")
    for key in content:
        if key not in KEYS:
            raise MethodError(f"{what} has the unknown key {key!r}; it takes {' and '.join(KEYS)}")
    for key in KEYS:
        if key not in content:
            raise MethodError(f"{what} lacks the key {key}; it takes {' and '.join(KEYS)}")
        if not isinstance(content[key], str):
            raise MethodError(f"{what}: {key} must be a text, got {repr(content[key])[:60]}")
    instruction, target = content["instruction"], content["target"]
    if not instruction.strip():
        raise MethodError(f"{what}: instruction must not be empty")
    return Pretext(instruction, instruction, None if target.strip() == CONTEXT else target)
