"""From what was collected to a surrogate, and from a surrogate to its figures on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.training.excerpts import Document
from harness.training.feature_store import Store
from harness.training.progress import Progress
from methods.kvzap.calibration import Calibrated, calibrate, r2
from methods.kvzap.mlp import fit_layer
from methods.kvzap.moments import Moments
from methods.kvzap.surrogate import Shape, Surrogate

#: what the committed and published weights are rounded to
NUMBERS = {"linear": torch.float32, "mlp": torch.float16}


def moments_of(store: Store, progress: Progress) -> Moments:
    """The moments of what a complete store holds, document by document."""
    moments = Moments(store.shape.layers, store.shape.features, store.shape.heads)
    for number in progress.over("reading back", 0, len(store.ends)):
        rows = store.span(number)
        for layer in range(store.shape.layers):
            moments.add(layer, _tensor(store.features(layer, rows)), _tensor(store.targets(layer, rows)))
        moments.documents = number + 1
    return moments


def fit_linear(moments: Moments, shape: Shape, features: str, progress: Progress) -> Surrogate:
    """Ridge regression of each layer."""
    surrogate = Surrogate(shape, features)
    for layer in progress.over("fitting layers", 0, shape.n_modules):
        weights, biases = moments.fit(layer)
        surrogate.layers[layer].load_state_dict({"weight": torch.tensor(weights), "bias": torch.tensor(biases)})
    return surrogate


def fit_mlp(store: Store, shape: Shape, features: str, seed: int, device: str, progress: Progress) -> Surrogate:
    """An MLP for each layer, one after the other; a layer's seed is the run's plus its number."""
    surrogate = Surrogate(shape, features)
    rows = slice(0, store.ends[-1])
    for layer in progress.over("fitting layers", 0, shape.n_modules):
        fitted = fit_layer(store.features(layer, rows), store.targets(layer, rows), shape, seed + layer, device)
        surrogate.layers[layer].load_state_dict(fitted.network.state_dict())
    return surrogate


def rounded(surrogate: Surrogate) -> Surrogate:
    """The surrogate as it will be read back from disk, so that its figures are those of the file."""
    state = surrogate.state_dict()
    number = NUMBERS[surrogate.kind]
    surrogate.load_state_dict({name: value.to(number).float() for name, value in state.items()})
    return surrogate


class Figures(NamedTuple):
    """A surrogate on held-out text: R2 ``[L, H]``, and thresholds."""

    r2: Tensor
    calibrated: list[Calibrated]


def evaluate(
    surrogate: Surrogate, store: Store, documents: Sequence[Document], window: int, progress: Progress
) -> Figures:
    """R2 over the text tokens of the held-out contexts, and thresholds over the whole contexts."""
    spans = [store.span(number) for number in range(len(documents))]
    lengths = [span.stop - span.start for span in spans]
    scores = [torch.empty(store.shape.layers, store.shape.heads, length) for length in lengths]
    # the template's tokens are in the cache, hence in the thresholds, but no surrogate learns them
    text = torch.cat([torch.arange(n) >= n - d.tokens for n, d in zip(lengths, documents, strict=True)])
    found = []
    for layer in progress.over("evaluating layers", 0, store.shape.layers):
        for span, part in zip(spans, scores, strict=True):
            part[layer] = surrogate.scores(layer, _tensor(store.features(layer, span)))
        predicted = torch.cat([part[layer] for part in scores], dim=1)
        true = _tensor(store.targets(layer, slice(0, store.ends[-1]))).T
        found.append(r2(predicted[:, text], true[:, text]))
    return Figures(torch.stack(found), calibrate(scores, window))


def _tensor(values: NDArray[np.float16]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
