"""Hashes of the methods' code as :func:`harness.evaluation.provenance.method_hash` makes them, read off the source
files: nothing is imported, so no torch is loaded."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
#: what every method's hash covers beside its classes
ALWAYS = ("methods/budgets.py", "methods/compat.py", "harness/engine/eviction.py")
BASE = ("methods.base", "Method")
WEIGHTS = "methods/kvzap/weights"


class Unknown(Exception):
    """Why a method's hash cannot be made here."""


class Found(NamedTuple):
    """A class in the source: its file, its method name if it has one, and (module, name) of the classes it extends."""

    file: Path
    method: str | None
    kind: str | None
    bases: tuple[tuple[str, str], ...]


class Sources:
    """The classes of ``methods/`` by module and name."""

    @cached_property
    def classes(self) -> dict[tuple[str, str], Found]:
        found: dict[tuple[str, str], Found] = {}
        for file in sorted((ROOT / "methods").rglob("*.py")):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found |= {(module, name): one for name, one in _classes(file, module)}
        return found

    def hash(self, method: str, model: str, options: Iterable[str]) -> str:
        """The hash of a method for a model, its variants having these options (canonical JSON). :class:`Unknown` where
        it is no method of this package, or reads a file that is not in it."""
        key = next((key for key, one in self.classes.items() if one.method == method), None)
        if key is None:
            raise Unknown("it is no method of this package")
        files = {ROOT / name for name in ALWAYS} | set(self._files(key))
        digest = hashlib.sha256()
        for file in sorted(files, key=lambda path: path.name):
            digest.update(file.read_bytes())
        for weights in sorted({self._fingerprint(key, model, one) for one in options}):
            digest.update(weights.encode())
        return digest.hexdigest()[:16]

    def _files(self, key: tuple[str, str]) -> Iterator[Path]:
        """The files of a class and of all that it extends, as far as they are methods."""
        for one in self._line(key):
            yield self.classes[one].file

    def _line(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        if key == BASE:
            return [key]
        if key not in self.classes:
            return []
        above = [one for base in self.classes[key].bases for one in self._line(base)]
        return [key, *above] if above else []

    def _fingerprint(self, key: tuple[str, str], model: str, options: str) -> str:
        """:meth:`methods.base.Method.fingerprint` of one variant's method."""
        try:
            given = json.loads(options)
        except (ValueError, RecursionError):
            raise Unknown("its options are no JSON") from None
        if not isinstance(given, dict):
            raise Unknown("its options are no object")
        if "@" in str(given.get("pretext", "")):
            raise Unknown("its pretext is a file of the user's")
        kind = next((self.classes[one].kind for one in self._line(key) if self.classes[one].kind), None)
        if kind is None:
            return ""
        if given.get("weights"):
            raise Unknown("its weights are not in this package")
        return _weights(model, kind)


def _classes(file: Path, module: str) -> Iterator[tuple[str, Found]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = tuple(names.get(b.id, (module, b.id)) for b in node.bases if isinstance(b, ast.Name))
            yield node.name, Found(file, _text(node, "name"), _text(node, "kind"), bases)


def _text(node: ast.ClassDef, name: str) -> str | None:
    """A class variable that is a text written out, None where it is empty or none."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == name:
            value = one.value
            return value.value or None if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


def _weights(model: str, kind: str) -> str:
    """The fingerprint of the surrogate that comes with this package for a model."""
    folder = _committed().get(model)
    path = ROOT / WEIGHTS / str(folder) / kind / "model.safetensors"
    if folder is None or not path.is_file():
        raise Unknown("its weights for this model are not in this package")
    from safetensors.numpy import load_file

    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(name.encode())
        digest.update(tensor.astype("float32").tobytes())
    return digest.hexdigest()[:16]


def _committed() -> dict[str, str]:
    tree = ast.parse((ROOT / f"{WEIGHTS}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "COMMITTED" for t in node.targets):
            return dict(ast.literal_eval(node.value))
    raise Unknown("the package does not say which weights it has")
