"""KVzap's method classes: binding, scores, thresholds, and where surrogates are found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from methods import registry
from methods.base import MethodError, ModelInfo, Observation, Protection
from methods.kvzap import files, weights
from methods.kvzap.method import KVzap, KVzapLinear, KVzapMLP
from methods.kvzap.overhead import overhead
from methods.kvzap.surrogate import Surrogate, needed_shape

INFO = ModelInfo("some/model", layers=2, query_heads=9, kv_heads=3, head_size=4, hidden_size=16)


def stored(folder: Path, kind: str, features: str = "hidden", **card: object) -> Surrogate:
    torch.manual_seed(1)
    surrogate = Surrogate(needed_shape(INFO, kind, features), features)
    files.save(surrogate, card, folder)
    return surrogate


def observation(tokens: int = 5) -> Observation:
    draw = torch.Generator().manual_seed(2)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    return Observation(
        layer=1,
        hidden=random(tokens, 16),
        queries=random(9, tokens, 4),
        keys=random(3, tokens, 4),
        values=random(3, tokens, 4),
        positions=torch.arange(tokens),
        scaling=0.5,
        prefix=0,
        context_seed=0,
        block_bytes=2**20,
        project=lambda: random(9, 16, 4),
        rotation=lambda positions: (torch.ones(len(positions), 4), torch.zeros(len(positions), 4)),
    )


@pytest.mark.parametrize("cls", [KVzapLinear, KVzapMLP])
def test_published_settings(cls: type[KVzap]) -> None:
    assert (cls.default_budget, cls.protection) == ("threshold", Protection(window=128))
    assert cls.phases == ("prefill", "decode", "both")


@pytest.mark.parametrize("cls", [KVzapLinear, KVzapMLP])
def test_scores_are_what_the_layer_predicts(tmp_path: Path, cls: type[KVzap]) -> None:
    surrogate, seen = stored(tmp_path, cls.kind), observation()
    plain = registry.build(cls.name, {"weights": str(tmp_path)})
    bound = plain.bind(INFO)
    state = surrogate.state_dict()
    if cls is KVzapLinear:
        found = seen.hidden @ state["layers.1.weight"].T + state["layers.1.bias"]
    else:
        inner = seen.hidden @ state["layers.1.0.weight"].T + state["layers.1.0.bias"]
        inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
        found = inner @ state["layers.1.2.weight"].T + state["layers.1.2.bias"]
    torch.testing.assert_close(bound.score(seen), found.T, atol=1e-5, rtol=0)
    assert bound.score(replace(seen, hidden=seen.hidden.bfloat16())).dtype == torch.float32
    assert bound == plain and hash(bound) == hash(plain) and bound != cls("elsewhere")
    assert bound.options() == {"weights": str(tmp_path)}
    with pytest.raises(MethodError, match="bind"):
        plain.score(seen)


def test_keys_and_values_are_read_head_by_head(tmp_path: Path) -> None:
    surrogate, seen = stored(tmp_path, "linear", "keys-values"), observation()
    scores = KVzapLinear(str(tmp_path)).bind(INFO).score(seen)
    for token in range(5):
        read = torch.cat([seen.keys[h, token] for h in range(3)] + [seen.values[h, token] for h in range(3)])
        torch.testing.assert_close(scores[:, token], surrogate.layers[1](read), atol=1e-5, rtol=0)


def test_no_surrogate_names_the_commands_that_make_and_use_one() -> None:
    with pytest.raises(MethodError) as error:
        KVzapMLP().bind(INFO)
    for part in ("'some/model'", "smollm2-135m", "Qwen/Qwen3-8B", "--option kvzap_mlp.weights=FOLDER"):
        assert part in str(error.value)
    assert "kvprune train-kvzap --model some/model --kind mlp --out FOLDER" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "change", "needed"),
    [
        ("linear", {"layers": 3}, "3 layers of 16 -> 3"),
        ("linear", {"hidden_size": 20}, "2 layers of 20 -> 3"),
        ("linear", {"kv_heads": 9}, "2 layers of 16 -> 9"),
        ("mlp", {}, "2 layers of 16 -> 3"),
    ],
)
def test_a_surrogate_of_another_model_or_kind_is_refused(
    tmp_path: Path, kind: str, change: dict[str, int], needed: str
) -> None:
    stored(tmp_path, kind)
    with pytest.raises(
        MethodError, match=f"it is {kind}, 2 layers of 16 -> .*3; needed is linear, {needed}.*train-kvzap"
    ):
        KVzapLinear(str(tmp_path)).bind(replace(INFO, **change))


def test_thresholds_come_from_the_card_and_published_ones_are_keyed_by_themselves(tmp_path: Path) -> None:
    stored(tmp_path, "linear", thresholds={"0.25": -6.5, "0.5": -5})
    assert KVzapLinear(str(tmp_path)).thresholds(INFO) == {"0.25": -6.5, "0.5": -5.0}
    assert KVzapLinear().thresholds(INFO) == {}
    qwen = replace(INFO, name="Qwen/Qwen3-8B")
    assert KVzapMLP().thresholds(qwen) == {"-6": -6.0, "-5": -5.0, "-4": -4.0, "-3": -3.0}


def test_published_weights_are_fetched_or_their_absence_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, asked = replace(INFO, name="Qwen/Qwen3-8B"), []

    def fetch(name: str, **_: object) -> str:
        asked.append(name)
        if len(asked) > 1:
            raise OSError("no route to host")
        return str(tmp_path)

    surrogate = stored(tmp_path, "mlp")
    (tmp_path / files.CARD).unlink()
    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    method = KVzapMLP().bind(info)
    assert asked == ["nvidia/KVzap-mlp-Qwen3-8B"]
    torch.testing.assert_close(method.score(observation()), surrogate.scores(1, observation().hidden))
    with pytest.raises(MethodError, match=r"nvidia/KVzap-mlp-Qwen3-8B from huggingface\.co") as error:
        KVzapMLP().bind(info)
    assert "no route to host" in str(error.value) and "--option kvzap_mlp.weights=FOLDER" in str(error.value)


def test_a_missing_path_is_not_looked_up_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    for where in ("./missing", "/no/such/folder", "plainname"):
        with pytest.raises(MethodError, match="no surrogate at"):
            KVzapLinear(where).bind(INFO)


def test_weights_of_the_package_are_found_and_the_alias_is_the_kind_with_the_better_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    monkeypatch.setitem(weights.COMMITTED, "some/model", "mine")
    assert registry.resolve("kvzap", INFO) == "kvzap_mlp"
    surrogate = stored(tmp_path / "mine" / "linear", "linear", r2=0.7)
    assert registry.resolve("kvzap", INFO) == "kvzap_linear"
    scores = KVzapLinear().bind(INFO).score(observation())
    torch.testing.assert_close(scores, surrogate.scores(1, observation().hidden))
    for r2, better in ((0.8, "kvzap_mlp"), (0.6, "kvzap_linear")):
        stored(tmp_path / "mine" / "mlp", "mlp", r2=r2)
        assert registry.resolve("kvzap", INFO) == better


@pytest.mark.parametrize("name", ["smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"])
@pytest.mark.parametrize("cls", [KVzapLinear, KVzapMLP])
def test_committed_weights_fit_their_model_and_have_a_whole_card(name: str, cls: type[KVzap]) -> None:
    info = ModelInfo(name, layers=30, query_heads=9, kv_heads=3, head_size=64, hidden_size=576)
    method = cls().bind(info)
    scores = method.score(replace(observation(7), hidden=torch.randn(7, 576)))
    assert scores.shape == (3, 7) and torch.isfinite(scores).all()
    thresholds = method.thresholds(info)
    assert list(thresholds) == ["0.25", "0.5", "0.75", "0.875"]
    assert sorted(thresholds.values()) == list(thresholds.values())
    folder = weights.committed(name, cls.kind)
    assert folder is not None and (folder / files.WEIGHTS).stat().st_size < 3_000_000
    card = json.loads((folder / files.CARD).read_text())
    assert card["model"] == "smollm2-135m" and card["kind"] == cls.kind and len(card["r2_by_layer"]) == 30


@pytest.mark.parametrize(
    ("dims", "linear", "mlp"),
    [
        ((4096, 12288, 32, 8, 128), 0.02, 1.09),  # Qwen3-8B
        ((4096, 14336, 32, 8, 128), 0.02, 0.96),  # Llama-3.1-8B
        ((5120, 25600, 64, 8, 128), 0.01, 0.67),  # Qwen3-32B
    ],
)
def test_overhead_is_the_papers(dims: tuple[int, int, int, int, int], linear: float, mlp: float) -> None:
    assert round(100 * overhead(*dims, surrogate=None), 2) == linear
    assert round(100 * overhead(*dims, surrogate=dims[0] // 8), 2) == mlp
