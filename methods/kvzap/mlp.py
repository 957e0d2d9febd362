"""The MLP surrogate of one layer, fitted with skorch from rows on disk.

Hyper-parameters are the paper's (arXiv 2601.07891, section 3.2 and its code): squared error, AdamW at 5e-3 with weight
decay 0.01, 15 epochs of batches of 512, cosine annealing to 0 by epoch, gradient norm clipped at 1, 5 % of the rows
for a validation loss that only is looked at. Two deviations: parameters are float32 where the paper has bfloat16, and
each layer is fitted by itself, so the gradient norm is that of one layer where the paper clips all layers' together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from methods.kvzap.surrogate import Shape, network

LEARNING_RATE = 5e-3
WEIGHT_DECAY = 0.01
EPOCHS = 15
BATCH = 512
CLIP = 1.0
VALIDATION = 0.05
#: bytes of a mapped file that may be resident; of a larger one, rows are given back after use
RESIDENT = 256 * 2**20
#: bytes that become resident around a row that is read: the kernel maps neighbouring pages too (more where its page
#: cache has large folios; all of it is clean, so the kernel can take it back)
AROUND = 64 * 2**10


class Fitted(NamedTuple):
    """A trained network, and the mean squared errors of its last epoch on training and on validation rows."""

    network: nn.Module
    train_loss: float
    valid_loss: float


def fit_layer(
    features: NDArray[np.float16], targets: NDArray[np.float16], shape: Shape, seed: int, device: str = "cpu"
) -> Fitted:
    """Fit one layer's network to features ``[rows, F]`` and targets ``[rows, H]``, which may be mapped files.

    The same seed, rows and machine give the same weights.
    """
    from skorch import NeuralNetRegressor
    from skorch.callbacks import GradientNormClipping, LRScheduler
    from skorch.dataset import ValidSplit

    draw = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = NeuralNetRegressor(
            _Network,
            module__shape=shape,
            criterion=nn.MSELoss,
            optimizer=torch.optim.AdamW,
            optimizer__weight_decay=WEIGHT_DECAY,
            lr=LEARNING_RATE,
            max_epochs=EPOCHS,
            batch_size=BATCH,
            iterator_train=Batches,
            iterator_train__draw=draw,
            iterator_valid=Batches,
            train_split=ValidSplit(VALIDATION, random_state=seed),
            callbacks=[
                ("rate", LRScheduler(policy="CosineAnnealingLR", T_max=EPOCHS, step_every="epoch")),
                ("clip", GradientNormClipping(CLIP)),
            ],
            callbacks__print_log=None,
            verbose=0,
            device=device,
        )
        net.fit(features, targets)
    last = net.history[-1]
    fitted: nn.Module = net.module_.inner.cpu()
    return Fitted(fitted, float(last["train_loss"]), float(last["valid_loss"]))


class _Network(nn.Module):
    """skorch builds modules from keyword arguments; this one takes a shape."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = network(shape)

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = self.inner(rows)
        return found


class Batches:
    """Batches of rows, whole arrays at a time, where a data loader would make a Python call for every row.

    ``draw`` shuffles; without it the order is kept. Rows of a mapped file are read as they are needed and given back
    now and then, so that resident memory does not grow with their number.
    """

    def __init__(self, dataset: Any, batch_size: int, draw: np.random.Generator | None = None) -> None:
        # skorch hands over the whole data set, or a part of it by indices
        whole = getattr(dataset, "dataset", dataset)
        self.rows: NDArray[np.int64] = np.asarray(getattr(dataset, "indices", np.arange(len(dataset))))
        self.features, self.targets = whole.X, whole.y
        self.size = len(self.rows) if batch_size == -1 else batch_size
        self.draw = draw

    def __len__(self) -> int:
        return -(-len(self.rows) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = self.rows if self.draw is None else self.draw.permutation(self.rows)
        touched = 0
        for start in range(0, len(order), self.size):
            rows = np.sort(order[start : start + self.size])
            yield _take(self.features, rows), _take(self.targets, rows)
            touched += len(rows) * max(AROUND, self.features.strides[0])
            if min(touched, self.features.nbytes) > RESIDENT:
                release(self.features)
                touched = 0


def _take(values: NDArray[np.float16], rows: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(values[rows].astype(np.float32))


def release(values: NDArray[np.float16]) -> None:
    """Give back the resident pages of a mapped file; they are read again when needed."""
    import mmap

    held = getattr(values, "_mmap", None)
    if held is not None and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED)
