"""Fitting a surrogate and measuring it: ridge from moments, the MLP's recipe, R2, thresholds."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.model_selection import ShuffleSplit

from methods.base import MethodError, Protection
from methods.budgets import Ranking
from methods.kvzap import mlp
from methods.kvzap.calibration import calibrate, r2
from methods.kvzap.mlp import Batches, fit_layer
from methods.kvzap.moments import Moments
from methods.kvzap.surrogate import Shape, network


def data(rows: int, width: int = 12, heads: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated features with large means, and targets that are linear in them up to noise."""
    draw = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, width, generator=draw) @ torch.randn(width, width, generator=draw) + 30
    y = x @ torch.randn(width, heads, generator=draw) + torch.randn(rows, heads, generator=draw) - 9
    return x, y


def moments_of(x: torch.Tensor, y: torch.Tensor, sizes: list[int]) -> Moments:
    found = Moments(1, x.shape[1], y.shape[1])
    for part_x, part_y in zip(x.split(sizes), y.split(sizes), strict=True):
        found.add(0, part_x, part_y)
    return found


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rows", [200, 8])
def test_ridge_from_moments_is_ridge_on_the_rows(rows: int, constant: bool) -> None:
    x, y = data(rows)  # 8 rows of 12 features: the products have no Cholesky factor
    if constant:  # such a feature gets no weight
        x[:, 4] = 7
    weights, biases = moments_of(x, y, [1, rows - 4, 3]).fit(0)
    wanted = Ridge(alpha=1.0).fit(x.double().numpy(), y.double().numpy())
    np.testing.assert_allclose(weights, wanted.coef_, atol=1e-6, rtol=0)
    np.testing.assert_allclose(biases, wanted.intercept_, atol=1e-5, rtol=0)


def test_saved_moments_go_on_exactly(tmp_path: Path) -> None:
    x, y = data(60)
    whole = moments_of(x, y, [20, 20, 20])
    half = moments_of(x[:40], y[:40], [20, 20])
    half.documents = 2
    half.save(tmp_path / "state")
    read = Moments.load(tmp_path / "state")
    read.add(0, x[40:], y[40:])
    assert read.documents == 2 and read.rows == [60]
    for name in ("mean_x", "mean_y", "xx", "xy"):
        assert torch.equal(getattr(read, name), getattr(whole, name))
    (tmp_path / "state").write_bytes(b"cut short")
    with pytest.raises(MethodError, match="damaged"):
        Moments.load(tmp_path / "state")


def curved(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Float16 rows whose targets no linear map predicts."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, 6))
    return x.astype(np.float16), np.stack([x[:, 0] * x[:, 1], np.abs(x[:, 2]) - 1], axis=1).astype(np.float16)


def test_the_mlp_is_fitted_by_the_papers_recipe() -> None:
    x, y = curved(1300)
    y = y * 4  # steep enough for gradients to be clipped
    shape, seed = Shape(6, 2, 10, 1), 5
    fitted = fit_layer(x, y, shape, seed)

    rows, _ = next(ShuffleSplit(test_size=0.05, random_state=seed).split(x))
    draw = np.random.default_rng(seed)
    torch.manual_seed(seed)
    wanted = network(shape)
    optimizer = torch.optim.AdamW(wanted.parameters(), lr=5e-3, weight_decay=0.01)
    for epoch in range(15):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (1 + math.cos(math.pi * epoch / 15)) / 2
        order = draw.permutation(rows)
        for start in range(0, len(order), 512):
            batch = np.sort(order[start : start + 512])
            loss = (wanted(torch.from_numpy(x[batch]).float()) - torch.from_numpy(y[batch]).float()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(wanted.parameters(), 1.0)
            optimizer.step()
    for got, value in zip(fitted.network.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(got, value, atol=1e-5, rtol=0)


def test_the_mlp_learns_what_a_linear_map_cannot_and_leaves_the_random_state_alone() -> None:
    x, y = curved(6000)
    state = torch.get_rng_state()
    fitted = fit_layer(x, y, Shape(6, 2, 40, 1), seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        found = r2(fitted.network(torch.from_numpy(x).float()).T, torch.from_numpy(y).float().T)
    line = Ridge().fit(x.astype(float), y.astype(float)).predict(x.astype(float))
    linear = r2(torch.from_numpy(line).T, torch.from_numpy(y).T)
    assert linear.max() < 0.1 and found.min() > 0.7
    assert 0 < fitted.valid_loss < y.astype(float).var(axis=0).mean()


class Rows:
    """What skorch hands to an iterator."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = x, y

    def __len__(self) -> int:
        return len(self.X)


def test_batches_cover_all_rows_once() -> None:
    x, y = curved(1000)
    whole = list(Batches(Rows(x, y), 300))
    assert [len(batch) for batch, _ in whole] == [300, 300, 300, 100]
    np.testing.assert_array_equal(torch.cat([batch for batch, _ in whole]).numpy(), x.astype(np.float32))
    batches = Batches(Rows(x, y), 300, np.random.default_rng(1))
    first, second = torch.cat([b for b, _ in batches]), torch.cat([b for b, _ in batches])
    assert not torch.equal(first, second) and not torch.equal(first, torch.from_numpy(x).float())
    assert torch.equal(first[:, 0].sort().values, second[:, 0].sort().values)


def resident(path: Path) -> int:
    """Bytes of the mappings of a file that are in memory."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="needs /proc/self/smaps to measure")
def test_mapped_rows_are_given_back_once_enough_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    np.zeros((4096, 1024), np.float16).tofile(path)  # 8 MB
    x = np.memmap(path, np.float16, "r", shape=(4096, 1024))
    rows, release, left = Rows(x, np.zeros((4096, 1), np.float16)), mlp.release, []

    def watched(values: np.memmap) -> None:
        assert resident(path) > 0
        release(values)
        left.append(resident(path))

    monkeypatch.setattr(mlp, "release", watched)
    assert sum(1 for _ in Batches(rows, 32, np.random.default_rng(0))) == 128
    assert left == []  # the whole file may stay
    # how much the kernel maps around a row depends on it, so what counts is how often rows are given back, and that
    # then none is left: 32 rows count as 2 MB, so every third batch exceeds 4 MB
    monkeypatch.setattr(mlp, "RESIDENT", 4 * 2**20)
    assert sum(1 for _ in Batches(rows, 32, np.random.default_rng(0))) == 128
    assert left == [0] * (128 // 3)


def test_r2_is_the_squared_correlation_of_each_head() -> None:
    draw = torch.Generator().manual_seed(0)
    true = torch.randn(2, 500, generator=draw)
    predicted = torch.stack([-3 * true[0] + torch.randn(500, generator=draw), true[1] * 0.1 + 40])
    found = r2(predicted, true)
    wanted = np.corrcoef(predicted[0].numpy(), true[0].numpy())[0, 1] ** 2
    assert found[0].item() == pytest.approx(wanted, abs=1e-6) and found[1].item() == pytest.approx(1, abs=1e-6)
    assert r2(torch.ones(1, 5), torch.randn(1, 5)).item() == 0


def measured(scores: list[torch.Tensor], tau: float, window: int = 128) -> float:
    """Mean removed by the threshold budget itself."""
    kept = [Ranking(s, Protection(window=window).mask(s.shape[-1], 0)).threshold(tau) for s in scores]
    return float(np.mean([1 - mask.double().mean().item() for mask in kept]))


def test_thresholds_remove_their_share_under_the_budget() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = [torch.randn(2, 3, length, generator=draw) - 5 for length in (800, 1000, 1240)]
    *within, beyond = calibrate(scores, 128)
    for found in (*within, beyond):
        assert found.measured == pytest.approx(measured(scores, found.tau), abs=1e-9)
    for found in within:
        assert found.reached and measured(scores, found.tau) == pytest.approx(found.share, abs=1e-3)
    # a share that the window does not allow here is calibrated for a longer context
    assert (beyond.share, beyond.reached) == (0.875, False)
    long = [torch.randn(2, 3, 4096, generator=torch.Generator().manual_seed(1)) - 5]
    assert measured(long, beyond.tau) == pytest.approx(0.875, abs=0.01)


def test_equal_scores_stay_together() -> None:
    scores = [torch.cat([torch.full((1, 1, 300), -8.0), torch.full((1, 1, 300), -4.0)], dim=-1)]
    found = calibrate(scores, window=100, shares=(0.25,))[0]
    assert found.tau in (-8.0, -4.0) and found.measured == measured(scores, found.tau, window=100)
