"""The second start reads what the first one made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.base import Request, Sample, Text
from benchmarks.registry import get
from benchmarks.ruler import benchmark as ruler

RULER = get("ruler")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Arguments of every call of the generator."""
    made: list[tuple[object, ...]] = []
    generate: Callable[..., list[Sample]] = ruler.generate
    monkeypatch.setattr(ruler, "generate", lambda *args: made.append(args[:4]) or generate(*args))
    return made


def ask(text: Text, limit: int = 2, **fields: object) -> list[Sample]:
    request = Request(**{"lengths": (1024,), "subsets": ("cwe",), "limit": limit, **fields})  # type: ignore[arg-type]
    return RULER.samples(request, text)


def files(cache_home: Path) -> list[Path]:
    return sorted((cache_home / "kvprune" / "benchmarks").iterdir())


def test_a_second_start_generates_only_what_is_missing(
    text: Text, cache_home: Path, calls: list[tuple[object, ...]]
) -> None:
    first = ask(text)
    assert ask(text) == first and ask(text, limit=1) == first[:1]
    assert calls == [("cwe", 1024, 0, 2)]
    longer = ask(text, limit=4)
    assert longer[:2] == first and len(longer) == 4 and ask(text, limit=3) == longer[:3]
    assert [call[3] for call in calls] == [2, 4]
    (path,) = files(cache_home)
    assert path.name.startswith("ruler-cwe-1024-") and path.suffix == ".jsonl"


def test_key_has_all_that_samples_depend_on(
    text: Text, cache_home: Path, calls: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(text)
    ask(text._replace(fingerprint="another tokenizer"))
    ask(text, seed=1)
    ask(text, lengths=(1100,))
    monkeypatch.setattr(ruler, "wonderwords_version", lambda: "2.2.0")
    ask(text)
    monkeypatch.setattr(ruler.lmeval_prompts, "installed_version", lambda: "0.4.14")
    ask(text)
    monkeypatch.setattr(ruler.Ruler, "version", "another")
    ask(text)
    assert len(calls) == len(files(cache_home)) == 7


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"\xff" + content,
        lambda content: b"no json\n" + content,
        lambda content: content.replace(b'"subset": "cwe", "length"', b'"subset": "fwe", "length"', 1),
    ],
)
def test_damaged_file_is_made_again(
    text: Text, cache_home: Path, calls: list[tuple[object, ...]], damage: Callable[[bytes], bytes]
) -> None:
    first = ask(text)
    (path,) = files(cache_home)
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert ask(text) == first
    assert len(calls) == 2
    assert path.read_bytes() == whole and files(cache_home) == [path]


def test_failed_write_leaves_the_old_file_and_no_other(
    text: Text, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(text)
    (path,) = files(cache_home)
    whole = path.read_bytes()
    monkeypatch.setattr(Path, "replace", Mock(side_effect=OSError("no space left")))
    with pytest.warns(UserWarning, match="not kept.*no space left"):
        assert len(ask(text, limit=3)) == 3
    assert files(cache_home) == [path] and path.read_bytes() == whole


def test_second_start_does_not_import_the_word_lists(cache_home: Path) -> None:
    code = """
import sys
from benchmarks.base import Request, Text
from benchmarks.registry import get
text = Text(lambda s: [0] * len(s.split()), lambda ids: "", "words")
print(len(get("ruler").samples(Request(lengths=(1024,), limit=2), text)))
print(sorted({"wonderwords", "benchmarks.ruler.tasks.niah", "benchmarks.ruler.tasks.cwe"} & set(sys.modules)))
"""
    outputs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == ["12", "['benchmarks.ruler.tasks.cwe', 'benchmarks.ruler.tasks.niah', 'wonderwords']"]
    assert outputs[1] == ["12", "[]"]
