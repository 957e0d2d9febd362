"""The hub is tried once; then an error says what to do without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from benchmarks import hub
from benchmarks.base import BenchmarkError

Calls = list[tuple[Any, ...]]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    """Stands in for the hub (``info`` and ``rows`` of a data set, ``status`` of a file) and its cache (``cached``);
    returns the calls. An outcome that is an error is raised."""

    def prepare(
        online: bool = True, info: Any = None, rows: Any = None, cached: Any = None, status: Any = 200
    ) -> Calls:
        calls: Calls = []

        def answer(kind: str, outcome: Any) -> Callable[..., Any]:
            def call(*args: Any, **fields: Any) -> Any:
                calls.append((kind, *args, *fields.values()))
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            return call

        header = SimpleNamespace(status_code=status) if isinstance(status, int) else status
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", not online)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, *args, **_: answer("info", info)(*args))
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=answer("load", rows)))
        monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: cached)
        monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=answer("head", header)))
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", answer("download", "downloaded"))
        return calls

    return prepare


def test_rows_are_loaded_once(library: Callable[..., Calls]) -> None:
    calls = library(rows=[{"a": 1}])
    for _ in range(2):
        assert hub.rows("some/set", "4096", "test", "hint") == [{"a": 1}]
    assert calls == [("info", "some/set"), ("load", "some/set", "4096", "test")]


def test_no_answer_ends_it_at_once(library: Callable[..., Calls]) -> None:
    calls = library(info=ConnectionError("Name or service not known\nand more"))
    message = r"the data set some/set \(4096, test\) is not available .* \(Name or service not known\); give a copy$"
    with pytest.raises(BenchmarkError, match=message):
        hub.rows("some/set", "4096", "test", "give a copy")
    assert calls == [("info", "some/set")]


def test_offline_only_the_cache_is_used(library: Callable[..., Calls]) -> None:
    calls = library(online=False, rows=[{"a": 1}])
    assert hub.rows("some/set", None, "train", "hint") == [{"a": 1}]
    assert calls == [("load", "some/set", None, "train")]
    library(online=False, rows=ConnectionError("OfflineModeIsEnabled"))
    message = r"the data set other/set \(train\) is not in the cache .* HF_HUB_OFFLINE is set; give a copy$"
    with pytest.raises(BenchmarkError, match=message):
        hub.rows("other/set", None, "train", "give a copy")


def test_a_failed_load_is_tried_again_at_the_next_request(library: Callable[..., Calls]) -> None:
    library(rows=ValueError("no such split"))
    with pytest.raises(BenchmarkError, match="no such split"):
        hub.rows("some/set", None, "train", "hint")
    library(rows=[{"a": 1}])
    assert hub.rows("some/set", None, "train", "hint") == [{"a": 1}]


def test_files_come_from_the_cache_or_the_hub(library: Callable[..., Calls]) -> None:
    assert library(cached="kept") == [] and hub.file("a/b", "c", "hint") == Path("kept")
    calls = library()
    assert hub.file("a/b", "c", "hint") == Path("downloaded")
    assert [call[0] for call in calls] == ["head", "download"] and hub.PATIENCE in calls[0]


@pytest.mark.parametrize(
    ("hub_is", "message", "tried"),
    [
        ({"online": False}, "it is not in the local cache, and HF_HUB_OFFLINE is set; unset it, or give a copy", []),
        ({"status": ConnectionError("no name\nmore")}, "/a/b/resolve/main/c: ConnectionError: no name); ", ["head"]),
        ({"status": 503}, "OSError: HTTP status 503); give a copy", ["head"]),
    ],
)
def test_a_file_that_is_not_available(
    library: Callable[..., Calls], hub_is: dict[str, Any], message: str, tried: list[str]
) -> None:
    calls = library(**hub_is)
    with pytest.raises(BenchmarkError, match="c of the data set a/b is not available from the hub") as caught:
        hub.file("a/b", "c", "give a copy")
    assert message in str(caught.value) and [call[0] for call in calls] == tried
