"""Surrogates on disk: the layouts that load, and what is said of those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods.base import MethodError
from methods.kvzap.files import CARD, CONFIG, WEIGHTS, load, save
from methods.kvzap.surrogate import Shape, Surrogate

Damage = Callable[[Path], object]
SHAPES = {"linear": Shape(16, 3, None, 2), "mlp": Shape(16, 3, 5, 2)}


def nvidia_folder(folder: Path, shape: Shape) -> dict[str, torch.Tensor]:
    """A folder as NVIDIA publishes it: bfloat16 weights, the four sizes and other keys in config.json, no card."""
    folder.mkdir(exist_ok=True)
    draw = torch.Generator().manual_seed(0)
    steps = [("", shape.input_dim, shape.output_dim)]
    if shape.hidden_dim is not None:
        steps = [("0.", shape.input_dim, shape.hidden_dim), ("2.", shape.hidden_dim, shape.output_dim)]
    tensors = {}
    for layer in range(shape.n_modules):
        for name, size_in, size_out in steps:
            tensors[f"layers.{layer}.{name}weight"] = torch.randn(size_out, size_in, generator=draw).bfloat16()
            tensors[f"layers.{layer}.{name}bias"] = torch.randn(size_out, generator=draw).bfloat16()
    save_file(tensors, folder / WEIGHTS)
    config = {"architectures": ["KVzapModel"], "dtype": "bfloat16", **shape.__dict__}
    (folder / CONFIG).write_text(json.dumps(config))
    return tensors


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_saved_surrogate_reads_back(tmp_path: Path, kind: str) -> None:
    surrogate = Surrogate(SHAPES[kind], "keys-values")
    save(surrogate, {"r2": 0.5}, tmp_path / "new" / "folder")
    found = load(tmp_path / "new" / "folder")
    assert found.card == {"r2": 0.5}
    assert (found.surrogate.shape, found.surrogate.features) == (SHAPES[kind], "keys-values")
    for name, value in surrogate.state_dict().items():
        assert torch.equal(found.surrogate.state_dict()[name], value)
    written = sorted((tmp_path / "new" / "folder").iterdir())
    assert [path.name for path in written] == sorted([WEIGHTS, CONFIG, CARD])
    assert len({path.stat().st_mode for path in written}) == 1  # the weights can be read by whoever reads the card


def test_half_precision_halves_the_file(tmp_path: Path) -> None:
    surrogate = Surrogate(Shape(160, 3, 20, 2))
    for number in (torch.float32, torch.float16):
        save(surrogate, {}, tmp_path / str(number), number)
    read = load(tmp_path / "torch.float16").surrogate.state_dict()
    for name, value in surrogate.state_dict().items():
        assert torch.equal(read[name], value.half().float())
    sizes = [(tmp_path / str(number) / WEIGHTS).stat().st_size for number in (torch.float32, torch.float16)]
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize("file", ["", WEIGHTS])  # a bare file shows its own shape
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_nvidias_layout_loads(tmp_path: Path, kind: str, file: str) -> None:
    tensors = nvidia_folder(tmp_path, SHAPES[kind])
    found = load(tmp_path / file)
    assert found.card == {} and found.surrogate.shape == SHAPES[kind] and found.surrogate.features == "hidden"
    for name, value in tensors.items():
        assert torch.equal(found.surrogate.state_dict()[name], value.float())


def tensors_without(*names: str) -> Damage:
    def damage(folder: Path) -> None:
        held = load_file(folder / WEIGHTS)
        save_file({name: value for name, value in held.items() if name not in names}, folder / WEIGHTS)

    return damage


def config(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        held = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**held, **changes}))

    return damage


def cut_short(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])


def not_finite(folder: Path) -> None:
    held = load_file(folder / WEIGHTS)
    held["layers.1.bias"][0] = float("nan")
    save_file(held, folder / WEIGHTS)


def something_else(folder: Path) -> None:
    save_file({"model.embed": torch.zeros(2, 2)}, folder / "other.safetensors")


NOT_CONFIGURATIONS = ["{", "[1]", '{"input_dim": 16}', '{"input_dim": "x", "output_dim": 3, "n_modules": 2}']


@pytest.mark.parametrize(
    ("damage", "file", "message"),
    [
        (lambda folder: None, "missing", r"no surrogate at .*missing; give a folder"),
        (lambda folder: (folder / WEIGHTS).unlink(), "", f"no {WEIGHTS}"),
        (lambda folder: (folder / CONFIG).unlink(), "", f"no {CONFIG}"),
        (cut_short, "", "is damaged"),
        (cut_short, WEIGHTS, "is damaged"),
        (not_finite, "", r"not finite in layers\.1\.bias"),
        *((lambda folder, text=text: (folder / CONFIG).write_text(text), "", CONFIG) for text in NOT_CONFIGURATIONS),
        (config(n_modules=3), "", r"layers\.2\.weight is missing, needs \(3, 16\)"),
        (config(hidden_dim=5), "", "mlp, 2 layers of 16 -> 5 -> 3"),
        (something_else, "other.safetensors", r"is not a surrogate: .*it has model\.embed"),
        (tensors_without("layers.0.weight", "layers.0.bias"), WEIGHTS, "no tensor layers.0.weight or"),
        (tensors_without("layers.0.bias"), WEIGHTS, r"is not a surrogate: layers\.0\.bias is missing"),
    ],
)
def test_what_does_not_load_says_why(tmp_path: Path, damage: Damage, file: str, message: str) -> None:
    nvidia_folder(tmp_path, SHAPES["linear"])
    damage(tmp_path)
    with pytest.raises(MethodError, match=message):
        load(tmp_path / file)
