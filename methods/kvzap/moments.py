"""The linear surrogate from running moments: ridge regression without ever holding the features.

Ridge with an intercept needs of the data only the means and the centred products X'X and X'Y. With L L' = X'X, a ridge
regression without intercept of the rows L' on the right-hand side inv(L) X'Y has the same normal equations, hence the
same coefficients.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from methods.base import MethodError

#: scikit-learn's default, as in the paper
ALPHA = 1.0


class Moments:
    """Means and centred products of features ``[n, F]`` and targets ``[n, H]`` of each layer, in float64.

    ``rows`` counts the tokens of each layer, ``documents`` what was added in full.
    """

    def __init__(self, layers: int, features: int, heads: int) -> None:
        self.documents = 0
        self.rows = [0] * layers
        self.mean_x = torch.zeros(layers, features, dtype=torch.float64)
        self.mean_y = torch.zeros(layers, heads, dtype=torch.float64)
        self.xx = torch.zeros(layers, features, features, dtype=torch.float64)
        self.xy = torch.zeros(layers, features, heads, dtype=torch.float64)

    def add(self, layer: int, features: Tensor, targets: Tensor) -> None:
        """Merge a batch into a layer, each centred on its own mean first (Chan, Golub and LeVeque, 1979)."""
        x, y = features.double(), targets.double()
        mean_x, mean_y = x.mean(dim=0), y.mean(dim=0)
        x, y = x - mean_x, y - mean_y
        old, new = self.rows[layer], len(x)
        step_x, step_y = mean_x.cpu() - self.mean_x[layer], mean_y.cpu() - self.mean_y[layer]
        weight = old * new / (old + new)
        self.xx[layer] += (x.T @ x).cpu() + weight * torch.outer(step_x, step_x)
        self.xy[layer] += (x.T @ y).cpu() + weight * torch.outer(step_x, step_y)
        self.mean_x[layer] += step_x * (new / (old + new))
        self.mean_y[layer] += step_y * (new / (old + new))
        self.rows[layer] = old + new

    def save(self, path: Path) -> None:
        """Write the state whole or not at all."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        counts = torch.tensor([self.documents, *self.rows])
        held = {"mean_x": self.mean_x, "mean_y": self.mean_y, "xx": self.xx, "xy": self.xy, "counts": counts}
        save_file(held, draft)
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> Moments:
        """The state that :meth:`save` wrote. Unreadable: :class:`MethodError`."""
        try:
            held = load_file(path)
        except (OSError, SafetensorError) as error:
            raise MethodError(f"{path} is damaged ({error}); delete it and train again") from error
        layers, features, heads = held["xy"].shape
        found = cls(layers, features, heads)
        found.mean_x, found.mean_y, found.xx, found.xy = (held[key] for key in ("mean_x", "mean_y", "xx", "xy"))
        found.documents, *found.rows = held["counts"].tolist()
        return found

    def fit(self, layer: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ridge weights ``[H, F]`` and biases ``[H]`` of a layer."""
        from sklearn.linear_model import Ridge

        rows, right = _square_root(self.xx[layer].numpy(), self.xy[layer].numpy())
        weights = Ridge(alpha=ALPHA, fit_intercept=False).fit(rows, right).coef_
        return weights, self.mean_y[layer].numpy() - weights @ self.mean_x[layer].numpy()


def _square_root(xx: NDArray[np.float64], xy: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows R and right-hand side B with R'R = xx and R'B = xy: the Cholesky factor, or where ``xx`` is singular (fewer
    tokens than features, a constant feature) the root of its positive eigenvalues."""
    from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

    try:
        lower = cholesky(xx, lower=True)
        return lower.T, solve_triangular(lower, xy, lower=True)
    except LinAlgError:
        values, vectors = eigh(xx)
        sure = values > values.max() * len(values) * np.finfo(np.float64).eps
        roots, vectors = np.sqrt(values[sure])[:, None], vectors[:, sure].T
        return roots * vectors, (vectors @ xy) / roots
