"""A hash of the code that decides which pairs a method keeps, read off the source files; nothing is imported.

Hashed are the method's classes and every top-level definition that they reach by name, through imports, in ``methods/``
and in the method's own file, and what turns scores into masks: the budgets and the evictor.
Each definition is written down as its syntax tree. Left out, so that none of it changes a hash:

- comments, docstrings, blank lines, the layout of the code
- imports and annotations; a name stands for what it refers to, however it was imported. The class that a field is
  annotated with is reached, though, since its methods are called through the field
- the names, the order and the files of top-level definitions
- the messages of errors, and assertions
- members of a method class that declare or document (:data:`DECLARING`), and of the base class all but
  :data:`DECIDING`
- what finds and reads weights and texts (:data:`OPAQUE`): they are hashed as the method's fingerprint
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ROOT = Path(__file__).parents[2]


class Definition(NamedTuple):
    """A top-level name of a module."""

    module: str
    name: str


BASE = Definition("methods.base", "Method")
KVPRESS = Definition("methods.kvpress", "Kvpress")
#: what turns scores into masks, for every method
ALWAYS = (
    BASE,
    Definition("methods.protection", "Protection"),
    Definition("methods.budgets", "Ranking"),
    Definition("methods.budgets", "number_kept"),
    Definition("harness.engine.eviction", "Policy"),
    Definition("harness.engine.eviction", "make_evictors"),
)
#: members of the base class that decide masks as they stand there; all others are abstract, neutral or declare
DECIDING = {"mechanism", "mechanism_for", "kept_by_layer", "score_step", "passes"}
#: members of a method class that declare, document or word a message: they decide no mask, or are in the variant
DECLARING = {
    "name",
    "summary",
    "paper",
    "cost",
    "needs",
    "phases",
    "budgets",
    "default_budget",
    "refused",
    "score_range",
    "is_control",
    "lacks",
    "thresholds",
    "fingerprint",
    "options",
}
#: modules that say where code, weights and texts are found; what is found is hashed as code and as fingerprints
OPAQUE = {"methods.registry", "methods.yaml_files", "methods.pretexts", "methods.kvzap.weights", "methods.kvzap.files"}
#: fields of a syntax node that do not count
SILENT = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind"}

#: the names bound around a node: None, or what an import binds them to
Scope: TypeAlias = Mapping[str, str | None]
#: a syntax tree as nested lists of texts
Plain: TypeAlias = "str | list[Plain]"


def code_hash(
    method: Definition, fingerprints: Iterable[str], others: Mapping[str, Path] | None = None, package: Path = ROOT
) -> str:
    """16 hex digits for a method's class and the fingerprints of its instances in a run.

    ``others`` are the files of modules outside ``methods/``, by name, where the method is a plugin's. LookupError where
    no file defines the class.
    """
    modules = {**{name: _module(name, file) for name, file in (others or {}).items()}, **_package(package)}
    digest = hashlib.sha256()
    for text in sorted(_closures([*ALWAYS, method], modules)):
        digest.update(text.encode())
    for fingerprint in sorted(set(fingerprints)):
        digest.update(fingerprint.encode())
    return digest.hexdigest()[:16]


class Module:
    """The top-level definitions of a source file, and the full paths of what it imports."""

    def __init__(self, name: str, source: str) -> None:
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, str] = {}
        for statement in ast.parse(source).body:
            bound = _bound([statement], name)
            self.imports |= {alias: target for alias, target in bound.items() if target is not None}
            for own in {alias for alias, target in bound.items() if target is None} | _changed(statement):
                self.definitions.setdefault(own, []).append(statement)


@cache
def _package(folder: Path) -> dict[str, Module]:
    files = [*sorted((folder / "methods").rglob("*.py")), folder / "harness" / "engine" / "eviction.py"]
    names = (".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__") for file in files)
    return {name: _module(name, file) for name, file in zip(names, files, strict=True)}


def _module(name: str, file: Path) -> Module:
    return Module(name, file.read_text(encoding="utf-8"))


def _closures(roots: Sequence[Definition], modules: Mapping[str, Module]) -> set[str]:
    """A hash for each root with all that it reaches, and for each class that fields hold and nothing else reaches."""
    found: set[str] = set()
    reached: set[Definition] = set()
    pending = list(roots)
    for place, root in enumerate(pending):  # which grows while it is read
        if place < len(roots) or root not in reached:
            closure = _Closure(root, modules)
            found.add(closure.text)
            reached |= closure.numbers.keys()
            pending += closure.held
    return found


class _Closure:
    """A definition and all that it reaches. Each is written once, in the order of reach, and referred to by its number
    in that order, so that names and places do not count.

    text      the hash of what was written
    numbers   the definitions with their numbers
    held      the definitions that fields are annotated with
    """

    def __init__(self, root: Definition, modules: Mapping[str, Module]) -> None:
        self.order = [root]
        self.numbers = {root: 0}
        self.held: list[Definition] = []
        written: list[Plain] = []
        for definition in self.order:  # which grows while it is read
            try:
                statements = modules[definition.module].definitions[definition.name]
            except KeyError:
                raise LookupError(f"no source of {definition.module} defines {definition.name}") from None
            writer = _Writer(definition, modules, self)
            written.append([writer.plain(statement, {}) for statement in statements])
        self.text = hashlib.sha256(json.dumps(written).encode()).hexdigest()

    def refer(self, definition: Definition) -> str:
        if definition not in self.numbers:
            self.numbers[definition] = len(self.order)
            self.order.append(definition)
        return f"#{self.numbers[definition]}"


class _Writer:
    """Writes the statements of one definition with all names resolved."""

    def __init__(self, definition: Definition, modules: Mapping[str, Module], closure: _Closure) -> None:
        self.definition, self.modules, self.closure = definition, modules, closure

    def plain(self, node: Any, scope: Scope) -> Plain:
        match node:
            case list():
                return [self.plain(one, scope) for one in node]
            case ast.Name() | ast.Attribute() if dotted := _dotted(node):
                return self._reference(dotted, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return [self._reference(node.name, scope), *self._function(node, scope)]
            case ast.ClassDef():
                return self._class(node, scope)
            case ast.Lambda():
                return self._fields(node, self._inside(scope, node.args))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return self._fields(node, self._inside(scope, *(part.target for part in node.generators)))
            case ast.AnnAssign() if node.value is not None:
                return ["Assign", [self.plain(node.target, scope)], self.plain(node.value, scope)]
            case ast.Raise():
                return "Raise"
            case ast.AST():
                return self._fields(node, scope)
        return repr(node)

    def _fields(self, node: ast.AST, scope: Scope) -> Plain:
        written: list[Plain] = [type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name in SILENT or value is None or value == []:
                continue
            is_body = isinstance(value, list) and isinstance(value[0], ast.stmt)
            written.append([name, self.plain(_counted(value) if is_body else value, scope)])
        return written

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> list[Plain]:
        arguments = self._inside(scope, node.args)
        body = [one for one in _counted(node.body) if not (isinstance(one, ast.AnnAssign) and one.value is None)]
        return [
            type(node).__name__,
            self.plain(node.decorator_list, scope),
            self.plain(node.args, arguments),
            self.plain(body, self._inside(arguments, *node.body)),
        ]

    def _class(self, node: ast.ClassDef, scope: Scope) -> Plain:
        body = _counted(node.body)
        if self.definition == BASE:
            body = [one for one in body if _names(one) & DECIDING]
        elif self.definition == KVPRESS or self._extends(node, self.definition.module, scope):
            body = [one for one in body if not _names(one) & DECLARING]
        inside = self._inside(scope, *node.body)
        members: list[Plain] = []
        for one in body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):  # it does not see the other names of its class
                members.append([one.name, *self._function(one, scope)])
            else:
                members.append(self.plain(one, inside))
            if isinstance(one, ast.AnnAssign):
                self._hold(one.annotation, scope)
        outside = [self.plain(one, scope) for one in (node.decorator_list, node.bases, node.keywords)]
        return ["ClassDef", self._reference(node.name, scope), *outside, members]

    def _extends(self, node: ast.ClassDef, module: str, scope: Scope) -> bool:
        """Whether a class is a method, or what kvpress has of one."""
        for base in map(_dotted, node.bases):
            found, _ = _follow(_path(base, module, scope), self.modules)
            if found in (BASE, KVPRESS):
                return True
            statements = self.modules[found.module].definitions[found.name] if found else []
            if found and any(isinstance(a, ast.ClassDef) and self._extends(a, found.module, {}) for a in statements):
                return True
        return False

    def _inside(self, scope: Scope, *nodes: ast.AST) -> Scope:
        return {**scope, **_bound(nodes, self.definition.module)}

    def _reference(self, dotted: str, scope: Scope) -> str:
        """What a name, or a name with attributes, stands for: a definition by its number, else its full path."""
        if scope.get(dotted.partition(".")[0], "") is None:
            return dotted
        found, rest = _follow(_path(dotted, self.definition.module, scope), self.modules)
        if found is None:
            return rest.removeprefix(f"{self.definition.module}.")  # what no import and no definition binds: a builtin
        return ("opaque" if found.module in OPAQUE else self.closure.refer(found)) + rest

    def _hold(self, annotation: ast.expr, scope: Scope) -> None:
        for name in filter(None, map(_dotted, ast.walk(annotation))):
            found, _ = _follow(_path(name, self.definition.module, scope), self.modules)
            if found and found.module not in OPAQUE:
                self.closure.held.append(found)


def _path(dotted: str, module: str, scope: Scope) -> str:
    head, dot, attributes = dotted.partition(".")
    return f"{scope.get(head) or f'{module}.{head}'}{dot}{attributes}"


def _follow(path: str, modules: Mapping[str, Module]) -> tuple[Definition | None, str]:
    """The definition that a full path leads to through imports, and the attributes of it that follow; None and the last
    path where that is outside ``modules``."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        name, first, rest = ".".join(parts[:cut]), parts[cut], "".join(f".{part}" for part in parts[cut + 1 :])
        if name not in modules:
            continue
        if first in modules[name].definitions:
            return Definition(name, first), rest
        target = modules[name].imports.get(first)
        return _follow(target + rest, modules) if target else (None, path)
    return None, path


def _dotted(node: ast.AST) -> str:
    """A name with its attributes, as ``torch.nn.functional``; empty where it begins with anything else."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _bound(nodes: Iterable[ast.AST], module: str) -> dict[str, str | None]:
    """The names that nodes bind in the scope that they stand in, with the full path of those that are imported."""
    found: dict[str, str | None] = {}
    elsewhere: set[str] = set()
    pending = list(nodes)
    while pending:
        match node := pending.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found[node.name] = None
                continue
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pending += [one.target for one in ast.walk(node) if isinstance(one, ast.NamedExpr)]
                continue
            case ast.Import():
                tops = {one.name.partition(".")[0]: one.name.partition(".")[0] for one in node.names if not one.asname}
                found |= tops | {one.asname: one.name for one in node.names if one.asname}
            case ast.ImportFrom():
                package = module.rpartition(".")[0]
                source = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
                found |= {one.asname or one.name: f"{source}.{one.name}" for one in node.names}
            case ast.Name(ctx=ast.Store() | ast.Del()):
                found[node.id] = None
            case ast.arg():
                found[node.arg] = None
            case ast.ExceptHandler(name=str()) | ast.MatchAs(name=str()) | ast.MatchStar(name=str()):
                found[str(node.name)] = None
            case ast.Global() | ast.Nonlocal():
                elsewhere |= set(node.names)
        pending += ast.iter_child_nodes(node)
    return {name: target for name, target in found.items() if name not in elsewhere}


def _changed(statement: ast.stmt) -> set[str]:
    """The names whose objects a top-level statement changes, as ``TABLE[key] = value`` and ``TABLE.update(...)`` do."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        targets: Sequence[ast.expr] = [statement.value.func]
    else:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
    changed = [one.value for one in targets if isinstance(one, ast.Attribute | ast.Subscript)]
    return {_dotted(one).partition(".")[0] for one in changed} - {""}


def _names(member: ast.stmt) -> set[str]:
    if isinstance(member, ast.FunctionDef):
        return {member.name}
    targets = member.targets if isinstance(member, ast.Assign) else [getattr(member, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _counted(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a block that count. Where it ends in an error, names assigned just before serve the message."""
    silent = ast.Import | ast.ImportFrom | ast.Pass | ast.Assert
    counted = [
        one
        for one in body
        if not isinstance(one, silent) and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
    if counted and isinstance(counted[-1], ast.Raise):
        while len(counted) > 1 and isinstance(counted[-2], ast.Assign):
            del counted[-2]
    return counted
