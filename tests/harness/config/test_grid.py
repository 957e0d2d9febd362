"""Variants: what a grid resolves to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.errors import HarnessError
from methods import registry
from methods.base import MethodError, ModelInfo
from tests.harness.driving import decimals, labels, planned
from tests.harness.toys import Carded


@pytest.mark.parametrize(
    ("methods", "grid", "found"),
    [
        ("kvzip", {}, ["kvzip global 0.5"]),
        ("full", {}, []),
        ("full,knorm", {}, ["knorm head 0.5"]),
        ("knorm,random,knorm", {"removed": "0.5,0.50"}, ["knorm head 0.5", "random head 0.5"]),
        ("kvzip", {"option": "kvzip.chunk=2048"}, ["kvzip global 0.5"]),
        (
            "streaming_llm,knorm",
            {"budget": "head,layer"},
            ["streaming_llm head 0.5", "knorm head 0.5", "knorm layer 0.5"],
        ),
    ],
)
def test_labels_name_what_is_planned(methods: str, grid: dict[str, Any], found: list[str]) -> None:
    assert labels(*methods.split(","), **{"removed": "0.5", **grid}) == found


def test_query_aware_variants_say_so() -> None:
    found = planned("knorm", removed="0.5", query_aware=True).planned
    assert [p.variant.label for p in found] == ["full aware", "knorm head 0.5 aware"]


@pytest.mark.parametrize(
    ("method", "grid", "message"),
    [
        ("streaming_llm", {"budget": "global"}, "streaming_llm does not work with budget 'global'"),
        ("knrm", {}, "unknown method 'knrm'; known, nearest first: knorm"),
        ("knorm", {"budget": "heads"}, "unknown budget 'heads'; known, nearest first: head"),
        ("kvzip", {"phase": "both"}, "kvzip: prefill only"),
        ("kvzap", {}, "train-kvzap"),
    ],
)
def test_what_cannot_be_planned_is_refused(method: str, grid: dict[str, Any], message: str) -> None:
    with pytest.raises((HarnessError, MethodError), match=message):
        planned(method, **grid)


def test_budget_head_works_for_every_method_that_has_a_budget(toys: None) -> None:
    names = [name for name in registry.names() if not name.startswith("kvzap") and name != "full"]
    assert {"knorm", "streaming_llm", "kvzip", "kvzip_plus", "random", "carded"} <= set(names)
    found = labels(*names, budget=("head",), removed=decimals("0.5"))
    assert found == [f"{name} head 0.5" for name in names]


def test_lists_make_products() -> None:
    found = planned(
        "knorm", "random", budget=("head", "layer"), removed=decimals("0.1", "0.9"), window=(0, 8), sinks=(0, 2)
    )
    fields = {
        (p.variant.method, p.variant.budget, p.variant.level, p.variant.window, p.variant.sinks) for p in found.planned
    }
    assert len(found.planned) == len(fields) == 1 + 2 * 2 * 2 * 2 * 2


def test_labels_are_unique_and_say_what_differs() -> None:
    found = labels("knorm", "kvzip", removed=decimals("0.5"), window=(0, 8), sinks=(0, 2))
    assert len(set(found)) == len(found) == 8
    assert "knorm head 0.5" in found  # its published protection is none
    assert "knorm head 0.5 window=8 sinks=2" in found
    assert "kvzip global 0.5 sinks=0" in found


def test_all_means_every_method_and_no_alias(toys: None) -> None:
    found = planned("all", removed=decimals("0.5"))
    ran = {p.variant.method for p in found.planned}
    assert ran | set(found.skipped) == set(registry.names())
    assert not (ran | set(found.skipped)) & set(registry.aliases())


def test_flags_replace_the_published_protection() -> None:
    (kvzip,) = planned("kvzip", removed=decimals("0.5")).planned[1:]
    assert (kvzip.variant.sinks, kvzip.variant.protection().prefix) == ("prefix", True)
    (other,) = planned("kvzip", removed=decimals("0.5"), sinks=(2,), window=(5,)).planned[1:]
    kept = other.variant.protection()
    assert (kept.sinks, kept.window, kept.prefix) == (2, 5, False)


def test_the_published_window_holds_under_every_budget(toys: None) -> None:
    found = planned("carded", budget=("head", "layer", "threshold"), removed=decimals("0.5")).planned[1:]
    assert [p.variant.window for p in found] == [4, 4, 4]


def test_flags_never_take_a_methods_own_mechanism() -> None:
    (one,) = planned("streaming_llm", removed=decimals("0.5"), sinks=(0,), window=(0,)).planned[1:]
    assert one.variant.sinks == 0
    assert (one.variant.protection() | one.method.mechanism_for(10)).sinks == 4


def test_compat_gives_kvpress_sinks_and_shows_in_the_label() -> None:
    (one,) = planned("kvzip", removed=decimals("0.5"), compat="kvpress").planned[1:]
    assert (one.variant.label, one.variant.sinks) == ("kvzip global 0.5 compat=kvpress", 4)


def test_an_option_with_two_values_is_two_variants() -> None:
    found = planned("kvzip", removed=decimals("0.5"), option=("kvzip.chunk=64", "kvzip.chunk=128")).planned[1:]
    assert [p.variant.label for p in found] == ["kvzip global 0.5 chunk=64", "kvzip global 0.5 chunk=128"]
    assert [json.loads(p.variant.options)["chunk"] for p in found] == [64, 128]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "METHOD.NAME=VALUE, got ''"),
        ("chunk=3", "METHOD.NAME=VALUE"),
        ("kvzip.=3", "METHOD.NAME=VALUE"),
        ("kvzip.chunk", "METHOD.NAME=VALUE"),
        ("kvzip.chunk=", "kvzip.chunk must be int, got ''"),
        ("kvzip.chunk=two", "kvzip.chunk must be int, got 'two'"),
        ("kvzip.chunk=0", "chunk >= 1"),
        ("kvzip.chunks=3", "unknown option of kvzip 'chunks'; known, nearest first: chunk"),
        ("kvzp.chunk=3", "unknown method 'kvzp'; known, nearest first: kvzip"),
        ("knorm.chunk=3", "knorm takes no options"),
    ],
)
def test_a_wrong_option_is_refused(text: str, message: str) -> None:
    with pytest.raises((HarnessError, MethodError), match=message):
        planned("kvzip", "knorm", option=(text,))


def test_an_unsupported_budget_is_skipped_with_a_note_when_others_remain() -> None:
    found = planned("streaming_llm", "knorm", budget=("layer",), removed=decimals("0.5"))
    assert [p.variant.label for p in found.planned] == ["full", "knorm layer 0.5"]
    assert found.skipped == {
        "streaming_llm": "streaming_llm does not work with budget 'layer': its scores are positions, "
        "the same in all heads and layers. It takes head"
    }


def test_a_missing_surrogate_is_a_note_under_all() -> None:
    found = planned("all")
    assert {"kvzap_linear", "kvzap_mlp"} <= set(found.skipped)
    assert "knorm head 0.5" in [p.variant.label for p in found.planned]


@pytest.mark.parametrize("where", ["bind", "thresholds", "__init__"])
def test_what_a_methods_own_code_raises_is_its_own_fault(
    toys: None, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("of its own")

    monkeypatch.setattr(Carded, where, fail)
    with pytest.raises(MethodError, match="'carded' failed before the run: ZeroDivisionError: of its own"):
        planned("carded")
    found = planned("all", removed=decimals("0.5"))
    assert "failed before the run" in found.skipped["carded"]
    assert "knorm head 0.5" in [p.variant.label for p in found.planned]


def test_a_method_that_cannot_prune_while_decoding_is_skipped_with_a_note() -> None:
    found = planned("kvzip", "knorm", phase="decode", removed=decimals("0.5"))
    assert [p.variant.label for p in found.planned] == ["full", "knorm head 0.5"]
    assert found.skipped == {"kvzip": "prefill only"}
    assert [(one.variant.label, one.note) for one in found.unsupported] == [("kvzip", "prefill only")]


def test_a_model_with_sliding_windows_only_runs_the_control_alone() -> None:
    bare = ModelInfo("slides", 0, 9, 3, 8, 54)
    assert len(plan(RunConfig(method=("full",)), bare).planned) == 1
    with pytest.raises(HarnessError, match="sliding window"):
        plan(RunConfig(method=("knorm",)), bare)
