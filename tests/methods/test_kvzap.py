"""KVzap's method classes: binding, scores, thresholds, and where surrogates are found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from methods import registry
from methods.base import MethodError, ModelInfo, Observation
from methods.kvzap import files, weights
from methods.kvzap.method import KVzapLinear, KVzapMLP
from methods.kvzap.overhead import overhead
from methods.kvzap.surrogate import Surrogate, needed_shape

INFO = ModelInfo("some/model", layers=2, query_heads=9, kv_heads=3, head_size=4, hidden_size=16)
SMOLLM2 = ModelInfo("smollm2-135m", layers=30, query_heads=9, kv_heads=3, head_size=64, hidden_size=576)


def random_surrogate(kind: str, features: str = "hidden") -> Surrogate:
    torch.manual_seed(1)
    return Surrogate(needed_shape(INFO, kind, features), features)


def stored(folder: Path, kind: str, features: str = "hidden", **card: object) -> Surrogate:
    surrogate = random_surrogate(kind, features)
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


@pytest.mark.parametrize(("name", "kind"), [("kvzap_linear", "linear"), ("kvzap_mlp", "mlp")])
def test_scores_are_what_the_layer_predicts(tmp_path: Path, name: str, kind: str) -> None:
    surrogate = stored(tmp_path, kind)
    seen = observation()
    scores = registry.build(name, {"weights": str(tmp_path)}).bind(INFO).score(seen)
    state = surrogate.state_dict()
    if kind == "linear":
        found = seen.hidden @ state["layers.1.weight"].T + state["layers.1.bias"]
    else:
        inner = seen.hidden @ state["layers.1.0.weight"].T + state["layers.1.0.bias"]
        inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
        found = inner @ state["layers.1.2.weight"].T + state["layers.1.2.bias"]
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, found.T, atol=1e-5, rtol=0)


def test_keys_and_values_are_read_head_by_head(tmp_path: Path) -> None:
    surrogate = stored(tmp_path, "linear", "keys-values")
    seen = observation()
    scores = KVzapLinear(str(tmp_path)).bind(INFO).score(seen)
    for token in range(5):
        read = torch.cat([seen.keys[h, token] for h in range(3)] + [seen.values[h, token] for h in range(3)])
        torch.testing.assert_close(scores[:, token], surrogate.layers[1](read), atol=1e-5, rtol=0)


def test_bfloat16_hidden_states_are_scored_in_float32(tmp_path: Path) -> None:
    stored(tmp_path, "linear")
    seen, method = observation(), KVzapLinear(str(tmp_path)).bind(INFO)
    seen.hidden = seen.hidden.bfloat16()
    assert method.score(seen).dtype == torch.float32


def test_a_bound_method_is_the_same_dictionary_key(tmp_path: Path) -> None:
    stored(tmp_path, "linear")
    plain = KVzapLinear(str(tmp_path))
    bound = plain.bind(INFO)
    assert bound == plain and hash(bound) == hash(plain) and bound != KVzapLinear("elsewhere")
    assert bound.options() == {"weights": str(tmp_path)}


def test_an_unbound_method_says_what_is_missing() -> None:
    with pytest.raises(MethodError, match="bind"):
        KVzapLinear().score(observation())


def test_no_surrogate_names_the_commands_that_make_and_use_one() -> None:
    with pytest.raises(MethodError) as error:
        KVzapMLP().bind(INFO)
    text = str(error.value)
    assert "'some/model'" in text and "smollm2-135m" in text and "Qwen/Qwen3-8B" in text
    assert "kvprune train-kvzap --model some/model --kind mlp --out FOLDER" in text
    assert "--option kvzap_mlp.weights=FOLDER" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers": 3}, "needed is linear, 3 layers of 16 -> 3"),
        ({"hidden_size": 20}, "needed is linear, 2 layers of 20 -> 3"),
        ({"kv_heads": 9}, "needed is linear, 2 layers of 16 -> 9"),
    ],
)
def test_a_surrogate_of_another_model_is_refused(tmp_path: Path, change: dict[str, int], said: str) -> None:
    stored(tmp_path, "linear")
    info = ModelInfo(**{**INFO.__dict__, **change})
    with pytest.raises(MethodError, match="it is linear, 2 layers of 16 -> 3") as error:
        KVzapLinear(str(tmp_path)).bind(info)
    assert said in str(error.value) and "train-kvzap" in str(error.value)


def test_the_other_kind_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, "mlp")
    with pytest.raises(MethodError, match="it is mlp"):
        KVzapLinear(str(tmp_path)).bind(INFO)


def test_thresholds_come_from_the_card(tmp_path: Path) -> None:
    stored(tmp_path, "linear", thresholds={"0.25": -6.5, "0.5": -5})
    assert KVzapLinear(str(tmp_path)).thresholds(INFO) == {"0.25": -6.5, "0.5": -5.0}
    assert KVzapLinear().thresholds(INFO) == {}


def test_published_thresholds_are_keyed_by_themselves() -> None:
    info = ModelInfo("Qwen/Qwen3-8B", 36, 32, 8, 128, 4096)
    assert KVzapMLP().thresholds(info) == {"-6": -6.0, "-5": -5.0, "-4": -4.0, "-3": -3.0}


def test_published_weights_are_fetched_or_their_absence_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = ModelInfo("Qwen/Qwen3-8B", 2, 9, 3, 4, 16)  # sizes of the stand-in below
    asked = []

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


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    monkeypatch.setitem(weights.COMMITTED, "some/model", "mine")
    return tmp_path / "mine"


def test_the_alias_is_the_kind_with_the_better_card(committed: Path) -> None:
    assert registry.resolve("kvzap", INFO) == "kvzap_mlp"
    stored(committed / "linear", "linear", r2=0.7)
    assert registry.resolve("kvzap", INFO) == "kvzap_linear"
    stored(committed / "mlp", "mlp", r2=0.8)
    assert registry.resolve("kvzap", INFO) == "kvzap_mlp"
    stored(committed / "mlp", "mlp", r2=0.6)
    assert registry.resolve("kvzap", INFO) == "kvzap_linear"


def test_weights_of_the_package_are_found_by_every_name_of_the_model(committed: Path) -> None:
    surrogate = stored(committed / "linear", "linear")
    scores = KVzapLinear().bind(INFO).score(observation())
    torch.testing.assert_close(scores, surrogate.scores(1, observation().hidden))


@pytest.mark.parametrize("name", ["smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"])
@pytest.mark.parametrize("cls", [KVzapLinear, KVzapMLP])
def test_committed_weights_fit_their_model_and_have_a_whole_card(name: str, cls: type[KVzapLinear]) -> None:
    info = ModelInfo(**{**SMOLLM2.__dict__, "name": name})
    method = cls().bind(info)
    scores = method.score(smollm2_observation())
    assert scores.shape == (3, 7) and torch.isfinite(scores).all()
    thresholds = method.thresholds(info)
    assert list(thresholds) == ["0.25", "0.5", "0.75", "0.875"]
    assert sorted(thresholds.values()) == list(thresholds.values())
    folder = weights.committed(name, cls.kind)
    assert folder is not None and (folder / files.WEIGHTS).stat().st_size < 3_000_000
    card = json.loads((folder / files.CARD).read_text())
    assert card["model"] == "smollm2-135m" and card["kind"] == cls.kind and len(card["r2_by_layer"]) == 30


def smollm2_observation() -> Observation:
    seen = observation(7)
    seen.hidden = torch.randn(7, 576, generator=torch.Generator().manual_seed(3))
    return seen


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
