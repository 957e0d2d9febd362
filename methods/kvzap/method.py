"""KVzap: a surrogate predicts KVzip+ from the hidden state alone; pairs below a threshold are removed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from methods.base import Method, MethodError, ModelInfo, Observation, Protection, Step, loaded, path_option
from methods.kvpress import Kvpress, KVzapPress
from methods.kvzap.surrogate import Surrogate
from methods.kvzap.targets import features, step_features
from methods.kvzap.weights import best_kind, find, thresholds
from methods.registry import register, register_alias


@dataclass(frozen=True)
class KVzap(Method):
    """s = f_layer(x_t)_h, in float32: predicted ln KVzip+ of the pair, from the input of the attention module alone.

    KVzap, arXiv 2601.07891, section 3. Pairs with s < tau are removed when they leave the recent
    window of 128; no sinks are forced, since the surrogate learns them. The window holds under every budget.

    weights   a surrogate's folder or .safetensors file, or its name on the hub; by default found by the model's name
    """

    weights: str = path_option()
    surrogate: Surrogate | None = loaded()

    paper: ClassVar[str] = "arXiv 2601.07891"
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")
    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    default_budget: ClassVar[str] = "threshold"
    protection: ClassVar[Protection] = Protection(window=128)
    kvpress: ClassVar[Kvpress] = KVzapPress(decodes=True)
    score_range: ClassVar[tuple[float, float] | None] = (-20.0, 4.0)
    kind: ClassVar[str] = ""

    def bind(self, info: ModelInfo) -> Method:
        """A copy with the surrogate for this model; :class:`MethodError` where there is none that fits."""
        return replace(self, surrogate=find(info, self.kind, self.weights).surrogate)

    def thresholds(self, info: ModelInfo) -> dict[str, float]:
        """Those of the surrogate's card; for NVIDIA's weights the paper's, keyed by themselves (``{"-6": -6.0}``)."""
        return thresholds(info.name, self.kind, self.weights)

    def score_new(self, step: Step) -> Tensor:
        if self.surrogate is None:
            raise MethodError(f"{self.name} has no surrogate yet; use what bind(info) returns")
        variants, heads, new, _ = step.keys.shape
        scores = self.surrogate.scores(step.layer, step_features(step, self.surrogate.features))
        return scores.view(heads, variants, new).transpose(0, 1)

    def fingerprint(self) -> str:
        return self.surrogate.fingerprint() if self.surrogate is not None else ""

    def score(self, seen: Observation) -> Tensor:
        if self.surrogate is None:
            raise MethodError(f"{self.name} has no surrogate yet; use what bind(info) returns")
        return self.surrogate.scores(seen.layer, features(seen, self.surrogate.features))


@register
@dataclass(frozen=True)
class KVzapLinear(KVzap):
    """KVzap with a linear surrogate, D -> H."""

    name: ClassVar[str] = "kvzap_linear"
    summary: ClassVar[str] = "KVzip+ as a linear surrogate predicts it from the hidden state"
    cost: ClassVar[str] = "one small matrix product a layer"
    kind: ClassVar[str] = "linear"


@register
@dataclass(frozen=True)
class KVzapMLP(KVzap):
    """KVzap with an MLP, D -> D/8 -> H."""

    name: ClassVar[str] = "kvzap_mlp"
    summary: ClassVar[str] = "KVzip+ as a small MLP predicts it from the hidden state"
    cost: ClassVar[str] = "two small matrix products a layer"
    kind: ClassVar[str] = "mlp"


register_alias("kvzap", "the better surrogate for the model", lambda info: f"kvzap_{best_kind(info.name)}")
