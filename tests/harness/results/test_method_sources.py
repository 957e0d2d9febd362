"""Hashes of methods' code, read off the sources without importing them: what ``validate`` and the leaderboard use."""

from __future__ import annotations

import json

import pytest

from harness.evaluation import provenance
from harness.results.method_sources import Unknown, current_hash
from methods import registry
from methods.base import ModelInfo

SMOLLM2 = ModelInfo("smollm2-135m", layers=30, query_heads=9, kv_heads=3, head_size=64, hidden_size=576)


def test_method_hashes_read_off_the_sources_are_those_that_runs_write() -> None:
    seen = 0
    for name in (one for one in registry.names() if registry.get(one).__module__.startswith("methods.")):
        method = registry.build(name, {}).bind(SMOLLM2)
        options = json.dumps(method.options(), sort_keys=True)
        assert current_hash(name, SMOLLM2.name, [options]) == provenance.method_hash([method]), name
        seen += 1
    assert seen >= 17


@pytest.mark.parametrize(
    ("method", "model", "options", "why"),
    [
        ("someones", "smollm2-135m", "{}", "not a method of this package"),
        ("kvzap_mlp", "other", '{"weights": ""}', "not in this package"),
        ("kvzap_mlp", "smollm2-135m", '{"weights": "mine"}', "not in this package"),
        ("kvzip", "smollm2-135m", '{"pretext": "mine@12345678"}', "a file of the user's"),
        ("knorm", "smollm2-135m", "[" * 100_000, "not JSON"),
        ("knorm", "smollm2-135m", "[]", "not an object"),
    ],
)
def test_code_that_is_not_here_is_not_judged(method: str, model: str, options: str, why: str) -> None:
    with pytest.raises(Unknown, match=why):
        current_hash(method, model, [options])
