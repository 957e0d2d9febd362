"""One attempt, then an error with a way out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from benchmarks import hub
from benchmarks.base import BenchmarkError

Calls = list[tuple[Any, ...]]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    """Stands in for the hub and its library; what is called is listed."""

    def prepare(online: bool, asked: Exception | None = None, loaded: Any = None) -> Calls:
        calls: Calls = []

        def answer(kind: str, outcome: Any) -> Callable[..., Any]:
            def call(*args: Any, **fields: Any) -> Any:
                calls.append((kind, *args, *fields.values()))
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            return call

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", not online)
        monkeypatch.setattr(HfApi, "dataset_info", lambda self, *args, **fields: answer("ask", asked)(*args))
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=answer("load", loaded)))
        return calls

    return prepare


def test_rows_come_once(library: Callable[..., Calls]) -> None:
    calls = library(online=True, loaded=[{"a": 1}])
    for _ in range(2):
        assert hub.rows("some/set", "4096", "test", "hint") == [{"a": 1}]
    assert calls == [("ask", "some/set"), ("load", "some/set", "4096", "test")]


def test_no_answer_ends_it_at_once(library: Callable[..., Calls]) -> None:
    calls = library(online=True, asked=ConnectionError("Name or service not known\nand more"))
    message = r"the data set some/set \(4096, test\) cannot be had .* \(Name or service not known\); give a copy$"
    with pytest.raises(BenchmarkError, match=message):
        hub.rows("some/set", "4096", "test", "give a copy")
    assert calls == [("ask", "some/set")]


def test_offline_nothing_is_asked_and_the_cache_will_do(library: Callable[..., Calls]) -> None:
    calls = library(online=False, loaded=[{"a": 1}])
    assert hub.rows("some/set", None, "train", "hint") == [{"a": 1}]
    assert calls == [("load", "some/set", None, "train")]
    library(online=False, loaded=ConnectionError("OfflineModeIsEnabled"))
    message = r"the data set other/set \(train\) is not in the cache .* HF_HUB_OFFLINE is set; give a copy$"
    with pytest.raises(BenchmarkError, match=message):
        hub.rows("other/set", None, "train", "give a copy")


def test_a_failed_load_is_tried_again_when_asked_again(library: Callable[..., Calls]) -> None:
    library(online=True, loaded=ValueError("no such split"))
    with pytest.raises(BenchmarkError, match="no such split"):
        hub.rows("some/set", None, "train", "hint")
    library(online=True, loaded=[{"a": 1}])
    assert hub.rows("some/set", None, "train", "hint") == [{"a": 1}]
