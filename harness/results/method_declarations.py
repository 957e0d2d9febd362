"""What the methods of this package declare about themselves, read off their source files: nothing is imported, so a
reader of results loads no torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

METHODS = Path(__file__).parents[2] / "methods"


@cache
def declared(field: str) -> dict[str, str]:
    """A text that classes declare, such as ``cost`` or ``paper``, by method name; inherited where a class has none.
    Empty ones are left out."""
    classes = {name: node for file in sorted(METHODS.rglob("*.py")) for name, node in _classes(file)}

    def look_up(name: str, wanted: str) -> str | None:
        if name not in classes:
            return None
        own = _text(classes[name], wanted)
        above = (base.id for base in classes[name].bases if isinstance(base, ast.Name))
        return own if own is not None else next((text for base in above if (text := look_up(base, wanted))), None)

    own_names = {name: _text(node, "name") for name, node in classes.items()}
    return {method: text for name, method in own_names.items() if method and (text := look_up(name, field))}


def _classes(file: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node


def _text(node: ast.ClassDef, field: str) -> str | None:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == field:
            value: Any = one.value.value if isinstance(one.value, ast.Constant) else None
            return value if isinstance(value, str) else None
    return None
