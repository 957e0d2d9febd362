"""Hashes of the code of this package's methods, read off their source files.

Nothing is imported, so a reader of results loads no torch."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import yaml

from harness.results.method_hash import ROOT, Definition, code_hash

METHODS = ROOT / "methods"
WEIGHTS = METHODS / "kvzap" / "weights"


class Unknown(Exception):
    """Why the hash of a method's code cannot be computed here."""


class Declared(NamedTuple):
    """A class in ``methods/``: where it stands, its syntax tree, and the names of the classes it extends."""

    place: Definition
    node: ast.ClassDef
    bases: list[str]


def current_hash(method: str, model: str, options: Iterable[str]) -> str:
    """The hash of a method's code for a model, its variants having these options (canonical JSON), as a run records it.
    :class:`Unknown` where it is not a method of this package, or reads a file that is not in it."""
    found = next((one for one in _classes().values() if _text(one.node, "name") == method), None)
    if found is None:
        raise Unknown("it is not a method of this package")
    return code_hash(found.place, {_fingerprint(found.place.name, model, one) for one in options})


def as_hashed_now(method: str, recorded: str) -> str:
    """The hash that a run recorded for a method, or, where it was made another way or the code was since rewritten to
    the same effect, the hash of that code as it is made now (``methods/earlier_hashes.yaml``)."""
    return _earlier().get(method, {}).get(recorded, recorded)


@cache
def _earlier() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = yaml.safe_load((METHODS / "earlier_hashes.yaml").read_text(encoding="utf-8"))
    return content


@cache
def _classes() -> dict[str, Declared]:
    found: dict[str, Declared] = {}
    for file in sorted(METHODS.rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                found[node.name] = Declared(Definition(module, node.name), node, bases)
    return found


def _kind(class_name: str) -> str:
    """The kind of surrogate that a class, or the nearest class that it extends, reads; empty where it reads none."""
    found = _classes().get(class_name)
    if found is None:
        return ""
    return _text(found.node, "kind") or next(filter(None, map(_kind, found.bases)), "")


def _text(node: ast.ClassDef, field: str) -> str | None:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == field:
            value: Any = one.value.value if isinstance(one.value, ast.Constant) else None
            return value if isinstance(value, str) else None
    return None


def _fingerprint(class_name: str, model: str, options: str) -> str:
    """:meth:`methods.base.Method.fingerprint` of one variant's method."""
    try:
        given = json.loads(options)
    except (ValueError, RecursionError):
        raise Unknown("its options are not JSON") from None
    if not isinstance(given, dict):
        raise Unknown("its options are not an object")
    if "@" in str(given.get("pretext", "")):
        raise Unknown("its pretext is a file of the user's")
    kind = _kind(class_name)
    if not kind:
        return ""
    if given.get("weights"):
        raise Unknown("its weights are not in this package")
    return _weights(model, kind)


def _weights(model: str, kind: str) -> str:
    """The fingerprint of the surrogate that comes with this package for a model."""
    folder = _committed().get(model)
    path = WEIGHTS / str(folder) / kind / "model.safetensors"
    if folder is None or not path.is_file():
        raise Unknown("its weights for this model are not in this package")
    from safetensors.numpy import load_file  # late: most readers of results need no weights

    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(name.encode())
        digest.update(tensor.astype("float32").tobytes())
    return digest.hexdigest()[:16]


def _committed() -> dict[str, str]:
    tree = ast.parse((METHODS / "kvzap" / "weights.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "COMMITTED" for t in node.targets):
            return dict(ast.literal_eval(node.value))
    raise Unknown("the package does not say which weights it has")
