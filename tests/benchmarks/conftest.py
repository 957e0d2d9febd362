"""A toy tokenizer, a cache folder of its own for every test, and the shared data where it is present."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import hub
from benchmarks.base import Text
from benchmarks.ruler import source_texts
from tests.benchmarks import made_up

PIECE = re.compile(r"\s?\w{1,4}|\s|[^\w\s]")


def toy_text(fingerprint: str = "toy") -> Text:
    """Pieces of up to four letters with the space before them: like a real tokenizer, text a + text b may have fewer
    tokens than a and b."""
    table: dict[str, int] = {}
    pieces: list[str] = []

    def encode(text: str) -> list[int]:
        ids = []
        for piece in PIECE.findall(text):
            if piece not in table:
                table[piece] = len(pieces)
                pieces.append(piece)
            ids.append(table[piece])
        return ids

    def decode(ids: Sequence[int]) -> str:
        return "".join(pieces[i] for i in ids)

    return Text(encode, decode, fingerprint)


@pytest.fixture
def text() -> Text:
    return toy_text()


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """No test sees the hub as another one left it."""
    for remembered in (hub._rows, source_texts._from_hub, source_texts._not_on_hub):
        remembered.cache_clear()


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of made-up essays, SQuAD and HotpotQA."""
    return made_up.write(tmp_path_factory.mktemp("texts"))


@pytest.fixture
def nvidia_rows() -> Path:
    """Rows made by NVIDIA's own scripts, in the columns of ``--data``."""
    return shared("ruler", "generated", "columns_4096.jsonl")


@pytest.fixture
def longbench_data() -> Path:
    """Real rows of every subset, THUDM's prompts, and real predictions with their published scores."""
    return shared("longbench")


def shared(*parts: str) -> Path:
    """A place in the shared data; skips the test where it is absent."""
    root = Path(os.environ.get("KVPRUNE_SHARED", Path(__file__).parents[2].parent / "shared"))
    path = root.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"needs {path} (set KVPRUNE_SHARED)")
    return path
