"""Which changes of the code change which methods' hashes."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from harness.results.method_hash import ALWAYS, DECIDING, DECLARING, ROOT, Definition, code_hash
from harness.results.method_sources import METHODS, as_hashed_now, current_hash
from methods import base, registry

Edit = Callable[[Path], None]
KINDS = [kind for name in registry.names() if (kind := registry.get(name)).__module__.startswith("methods.")]
PLACES = {kind.name: Definition(kind.__module__, kind.__name__) for kind in KINDS}
ALL = set(PLACES)
EXPECTED = {"expected_attention", "expected_attention_plain"}
RECONSTRUCTION = {"kvzip", "kvzip_plus"}
SURROGATES = {"kvzap_linear", "kvzap_mlp"}
STREAMING = {"streaming_llm", "streaming_llm_rerotated"}
ADDED = "    def added(self):\n        return 1\n\n"
#: those that read attention weights in blocks
BLOCKWISE = {"h2o", "observed_attention", "snapkv", "pyramidkv", "tova", *EXPECTED, *RECONSTRUCTION}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "methods", tmp_path / "methods", ignore=shutil.ignore_patterns("weights", "__pycache__"))
    (tmp_path / "harness/engine").mkdir(parents=True)
    shutil.copy(ROOT / "harness/engine/eviction.py", tmp_path / "harness/engine")
    return tmp_path


def hashes(package: Path) -> dict[str, str]:
    return {name: code_hash(place, [""], package=package) for name, place in PLACES.items()}


@pytest.fixture(scope="module")
def today() -> dict[str, str]:
    return hashes(ROOT)


def in_file(name: str, old: str, new: str) -> Edit:
    def edit(package: Path) -> None:
        file = package / name
        text = file.read_text()
        assert text.count(old) >= 1, f"{name} lacks {old!r}"
        file.write_text(text.replace(old, new, 1))

    return edit


def import_of_another_name(package: Path) -> None:
    file = package / "methods/keydiff.py"
    text = file.read_text().replace("from torch.nn.functional import normalize", "from torch.nn import functional")
    file.write_text(text.replace("= normalize(", "= functional.normalize("))
    assert "functional.normalize" in file.read_text()


def laid_out_differently(package: Path) -> None:
    """All files as Python itself would write them: no comment, other quotes, breaks and parentheses."""
    for file in package.rglob("*.py"):
        file.write_text(ast.unparse(ast.parse(file.read_text())))


def turned_round(package: Path) -> None:
    """The definitions of a file in the opposite order."""
    file = package / "methods/attention.py"
    tree = ast.parse(file.read_text())
    tree.body.reverse()
    file.write_text(ast.unparse(tree))


def moved(package: Path) -> None:
    """Two definitions in another file, one under another name."""
    file = package / "methods/rope.py"
    (package / "methods/turning.py").write_text(
        file.read_text().replace("def rotate(", "def turned(", 1).replace("return rotate(", "return turned(")
    )
    file.write_text("from methods.turning import turned as rotate, unrotate\n")


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(edit, id=name)
        for name, edit in {
            "layout": laid_out_differently,
            "order": turned_round,
            "move": moved,
            "comment": in_file("methods/knorm.py", "        return", "        # the norm\n        return"),
            "docstring": in_file("methods/budgets.py", '"""The best', '"""Best'),
            "import": import_of_another_name,
            "annotation": in_file("methods/knorm.py", "seen: Observation) -> Tensor", "seen) -> object"),
            "message": in_file("methods/snapkv.py", "needs an odd kernel", "wants an odd kernel"),
            "assertion": in_file("harness/engine/eviction.py", "assert self.removed is not None\n", "pass\n"),
            "summary": in_file("methods/random.py", "uniform random scores", "scores of no meaning"),
            "base class": in_file("methods/base.py", "    def thresholds(", f"{ADDED}    def thresholds("),
            "unrelated": in_file("methods/kvzap/overhead.py", "2 * hidden", "3 * hidden"),
            "weights": in_file("methods/kvzap/weights.py", "COMMITTED = {", 'COMMITTED = {"other": "other",'),
        }.items()
    ],
)
def test_what_decides_nothing_changes_no_hash(edit: Edit, package: Path, today: dict[str, str]) -> None:
    edit(package)
    assert hashes(package) == today


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("methods/knorm.py", "-seen.keys", "seen.keys", {"knorm"}),
        ("methods/snapkv.py", "kernel: int = 5", "kernel: int = 7", {"snapkv", "pyramidkv"}),
        ("methods/pyramidkv.py", "2 * kept", "3 * kept", {"pyramidkv"}),
        ("methods/snapkv.py", "sums / rows", "sums", {"snapkv", "pyramidkv", "tova"}),
        ("methods/observed_attention.py", "+= weights", "+= 2 * weights", {"observed_attention", "h2o"}),
        ("methods/streaming_llm.py", "Protection(sinks=4)", "Protection(sinks=5)", STREAMING),
        ("methods/keydiff.py", "torch.nn.functional", "another", {"keydiff"}),
        ("methods/rope.py", "[-second, first]", "[second, first]", EXPECTED),
        ("methods/attention.py", "queries[:, block].float()", "queries[:, block]", BLOCKWISE - EXPECTED),
        ("methods/attention.py", "8 * 2**20", "4 * 2**20", BLOCKWISE),
        ("methods/kvzip.py", "exactly, starting", "starting", RECONSTRUCTION),
        ("methods/kvzip_plus.py", "1e-30", "1e-20", {"kvzip_plus"}),
        ("methods/kvzap/targets.py", "hidden.float()", "hidden", SURROGATES),
        ("methods/kvzap/surrogate.py", "nn.GELU()", "nn.ReLU()", SURROGATES),
        ("methods/budgets.py", "stable=True", "stable=False", ALL),
        ("methods/budgets.py", "Fraction(1, 5)", "Fraction(1, 4)", ALL),
        ("methods/base.py", "torch.cat([scores", "torch.cat([scores + 1", ALL),
        ("harness/engine/eviction.py", ">= policy.threshold", "> policy.threshold", ALL),
    ],
)
def test_what_decides_changes_the_hashes_of_those_that_reach_it(
    file: str, old: str, new: str, changed: set[str], package: Path, today: dict[str, str]
) -> None:
    in_file(file, old, new)(package)
    now = hashes(package)
    assert {name for name in today if now[name] != today[name]} == changed


PLUGIN = """
from dataclasses import dataclass
from methods import attention
from methods.base import Method

SCALES = {"a": 1}
SCALES["b"] = 2

@dataclass(frozen=True)
class Mine(Method):
    name = "mine"

    def score(self, seen):
        return scaled(seen.keys, attention.BLOCK)

def scaled(keys, other):
    unused = [SCALE for SCALE in ()]
    return keys * SCALES["a"]

SCALE = 3
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("", "# more\n", True),
        ('name = "mine"', 'name = "other"', True),
        ("SCALE = 3", "SCALE = 4", True),  # what scaled calls SCALE is its own
        ("from methods import attention", "import methods.attention as attention", True),
        ('["b"] = 2', '["a"] = 2', False),
        ("keys *", "keys /", False),
        ("attention.BLOCK", "2", False),
    ],
)
def test_a_plugin_is_hashed_by_what_it_reaches_in_its_file_and_here(
    old: str, new: str, same: bool, tmp_path: Path
) -> None:
    def of(text: str) -> str:
        (tmp_path / "mine.py").write_text(text)
        return code_hash(Definition("mine", "Mine"), [""], {"mine": tmp_path / "mine.py"})

    assert (of(PLUGIN) == of(PLUGIN.replace(old, new, 1))) is same


def test_weights_are_in_the_hash_and_the_order_of_instances_is_not() -> None:
    place = PLACES["knorm"]
    assert code_hash(place, ["a", "b"]) == code_hash(place, ["b", "a", "a"]) != code_hash(place, ["a"])
    with pytest.raises(LookupError, match="no source of nowhere defines Mine"):
        code_hash(Definition("nowhere", "Mine"), [""])


def test_each_member_of_the_base_class_is_known_to_decide_or_not() -> None:
    """A new one that decides masks as it stands in the base class belongs into DECIDING; one that is neutral there, and
    decides where a method overrides it, here."""
    neutral = {"compat", "kvpress", "protection", "positions", "protects", "protects_under", "bind"}
    neutral |= {"score", "score_new", "score_pass", "option_fields"}
    members = {name for name in vars(base.Method) | base.Method.__annotations__ if not name.startswith("__")}
    assert members == (DECIDING | DECLARING | neutral) - {"lacks"}  # which is a member of Kvpress


def test_all_that_makes_masks_of_scores_is_hashed() -> None:
    tree = ast.parse((ROOT / "harness/evaluation/keep_masks.py").read_text())
    used = {
        Definition(str(node.module), alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and node.module in ("methods.budgets", "methods.kvpress", "harness.engine.eviction")
        for alias in node.names
    }
    assert used <= set(ALWAYS)


def test_hashes_that_committed_runs_recorded_are_those_of_todays_code() -> None:
    recorded = set()
    for file in (ROOT / "results").glob("*/run.json"):
        run = json.loads(file.read_text())
        for method, then in run["method_hashes"].items():
            options = {one["options"] for one in run["configuration"]["variants"] if one["method"] == method}
            now = current_hash(method, run["configuration"]["model"], options)
            assert as_hashed_now(method, then) == now
            if then != now:  # a later run records today's
                recorded.add((method, then))
    earlier = yaml.safe_load((METHODS / "earlier_hashes.yaml").read_text())
    assert {(method, then) for method, hashes in earlier.items() for then in hashes} >= recorded
