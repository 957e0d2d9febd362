"""Names to methods: taken and unknown names, options as text, plugins that work and plugins that do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from methods import registry
from methods.base import Method, MethodError, ModelInfo
from methods.knorm import Knorm
from methods.kvzip import KVzip

BUILT_IN = ["full", "random", "knorm", "streaming_llm", "kvzip", "kvzip_plus"]
INFO = ModelInfo("some/model", layers=2, query_heads=9, kv_heads=3, head_size=8, hidden_size=72)
PLUGIN = """
from dataclasses import dataclass
from methods.base import Method
from methods.registry import register

@register
@dataclass(frozen=True)
class Mine(Method):
    strength: float = 0.5
    name = "{name}"
    summary = "a method from a file"
"""
NO_METHOD = "from methods.registry import register\n@register\n"
ALIAS = "from methods.registry import register_alias\nregister_alias('both', '', lambda info: 'knorm')\n"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten afterwards."""
    registry.load_all()
    for table in ("_methods", "_aliases", "_broken"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith("kvprune_plugin"):
            del sys.modules[name]


def plugin(folder: Path, text: str = "", name: str = "mine", file: str = "plugin.py") -> Path:
    path = folder / file
    path.write_text(text or PLUGIN.format(name=name))
    return path


@dataclass(frozen=True)
class Optioned(Method):
    count: int = 3
    share: float = 0.5
    deep: bool = False
    kind: str = "plain"
    name: ClassVar[str] = "optioned"


def test_the_built_in_methods_are_there_and_the_control_comes_first() -> None:
    names = registry.names()
    assert names[0] == "full" and set(BUILT_IN) <= set(names) and not set(registry.aliases()) & set(names)
    for name in names:
        cls = registry.get(name)
        assert cls.name == name and cls.summary and isinstance(registry.build(name, {}), cls)


@pytest.mark.parametrize(("typed", "nearest"), [("knrm", "knorm"), ("kvzipp", "kvzip"), ("Random", "random"), ("", "")])
def test_an_unknown_name_is_an_error_with_all_names_nearest_first(typed: str, nearest: str) -> None:
    with pytest.raises(MethodError) as caught:
        registry.get(typed)
    text = str(caught.value)
    assert repr(typed) in text
    listed = text.split("nearest first: ")[1].split(", ")
    assert set(listed) == {*registry.names(), *registry.aliases()}
    assert not nearest or listed[0] == nearest


def test_a_taken_name_is_an_error_and_the_first_owner_keeps_it() -> None:
    with pytest.raises(MethodError, match=r"'knorm' is taken .*methods\.knorm.*Thief"):
        registry.register(type("Thief", (Method,), {"name": "knorm"}))
    assert registry.get("knorm") is Knorm
    assert registry.register(Knorm) is Knorm  # again, which is harmless


@pytest.mark.parametrize("name", ["", "Upper", "9lives", "with-dash", "with space", "dot.ted", "née"])
def test_a_name_that_cannot_be_typed_as_an_option_is_refused(name: str) -> None:
    with pytest.raises(MethodError, match="lower case letters, digits and _"):
        registry.register(type("Odd", (Method,), {"name": name}))


def test_an_alias_resolves_by_the_model_and_its_name_is_taken_for_all() -> None:
    registry.register_alias("best", "the better one", lambda info: "knorm" if info.layers == 2 else "kvzip")
    assert registry.resolve("best", INFO) == "knorm"
    assert registry.resolve("kvzip", INFO) == "kvzip"
    assert "best" in registry.aliases() and "best" not in registry.names()
    with pytest.raises(MethodError, match="'best' is taken"):
        registry.register(type("Thief", (Method,), {"name": "best"}))
    for taken in ("best", "knorm"):
        with pytest.raises(MethodError, match=f"'{taken}' is taken"):
            registry.register_alias(taken, "", lambda info: "full")
    with pytest.raises(MethodError, match=r"unknown method 'bst'; known, nearest first: best"):
        registry.resolve("bst", INFO)


def test_options_are_converted_to_the_type_of_their_field() -> None:
    registry.register(Optioned)
    given = {"count": "7", "share": "1e-2", "deep": "TRUE", "kind": "7"}
    assert registry.build("optioned", given) == Optioned(7, 0.01, True, "7")
    expected = {"count": 3, "deep": False, "kind": "plain", "share": 0.5}
    assert registry.build("optioned", {"deep": "no"}).options() == expected
    assert registry.build("kvzip", {"chunk": "16", "lead_in": "0"}) == KVzip(chunk=16, lead_in=0)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("optioned.count", "7.5", "optioned.count must be int, got '7.5'"),
        ("optioned.count", "", "optioned.count must be int, got ''"),
        ("optioned.share", "half", "optioned.share must be float, got 'half'"),
        ("optioned.deep", "maybe", "optioned.deep must be true or false, got 'maybe'"),
        ("optioned.cont", "7", r"unknown option of optioned 'cont'; known, nearest first: count, .*optioned.cont=7"),
        ("knorm.depth", "2", r"knorm takes no options; got knorm\.depth=2"),
        ("kvzip.chunk", "0", "chunk >= 1"),  # the method's own check
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_that_names_it(option: str, text: str, message: str) -> None:
    registry.register(Optioned)
    name, key = option.split(".")
    with pytest.raises(MethodError, match=message):
        registry.build(name, {key: text})


def test_two_plugin_files_of_one_name_live_side_by_side(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        registry.load_plugin(plugin(tmp_path / name, name=name))
    assert registry.names()[-2:] == ["one", "two"]
    for name in ("one", "two"):
        assert registry.build(name, {"strength": "3"}).options() == {"strength": 3.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module_anywhere", "failed to load: ModuleNotFoundError: .*no_such_module_anywhere"),
        ("def broken(:", "failed to load: SyntaxError"),
        ("\n1 / 0", r"failed to load: ZeroDivisionError: .* \(line 2\)"),
        ("import sys\nsys.exit(0)", r"failed to load: SystemExit: 0 \(line 2\)"),
        (ALIAS + "1 / 0", "failed to load: ZeroDivisionError"),
        (PLUGIN.format(name="mine") + "1 / 0", "failed to load: ZeroDivisionError"),
        (PLUGIN.format(name="mine") + PLUGIN.format(name="mine"), "'mine' is taken"),
        ("x = 1", "registered no method; put @register above"),
        (PLUGIN.format(name="knorm"), "'knorm' is taken"),
        (PLUGIN.format(name="Bad Name"), "must be lower case"),
        (PLUGIN.replace('"{name}"', "7"), "method name 7 of .* must be lower case letters"),
        (NO_METHOD + "class Mine:\n    name = 'mine'", "subclass of methods.base.Method; put @register above"),
        (NO_METHOD + "def mine(): pass", "subclass of methods.base.Method"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_an_error_that_says_why(tmp_path: Path, text: str, message: str) -> None:
    before = registry.names(), registry.aliases()
    with pytest.raises(MethodError, match=message):
        registry.load_plugin(plugin(tmp_path, text))
    assert (registry.names(), registry.aliases()) == before


@pytest.mark.parametrize("file", ["missing.py", ".", "plugin.txt"])
def test_a_plugin_path_that_is_not_a_python_file_is_an_error(tmp_path: Path, file: str) -> None:
    plugin(tmp_path, file="plugin.txt")
    with pytest.raises(MethodError, match=r"is not a file|cannot be imported"):
        registry.load_plugin(tmp_path / file)


def test_an_entry_point_that_fails_is_reported_when_requested_and_stops_no_other(monkeypatch: Any) -> None:
    broken = EntryPoint("theirs", "no_such_module_anywhere:Method", registry.ENTRY_POINTS)
    works = EntryPoint("knorm", "methods.knorm:Knorm", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken, works] if group == "kvprune.methods" else [])
    registry.load_all.cache_clear()
    assert set(BUILT_IN) <= set(registry.names())
    with pytest.raises(MethodError, match="'theirs' comes from a plugin that failed to load: ModuleNotFoundError"):
        registry.get("theirs")


def test_a_method_works_without_transformers_and_without_the_harness() -> None:
    code = "import sys; from methods import registry; registry.names(); print([m for m in sys.modules if m in BAD])"
    command = [sys.executable, "-c", f"BAD = {{'transformers', 'harness', 'benchmarks'}}; {code}"]
    assert subprocess.check_output(command, text=True, cwd=Path(__file__).parents[2]).strip() == "[]"
