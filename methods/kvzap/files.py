"""Surrogates on disk: ``model.safetensors`` and ``config.json`` as NVIDIA publishes them, and a card of our own."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from methods.base import MethodError
from methods.kvzap.surrogate import Shape, Surrogate

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.json"


class Stored(NamedTuple):
    """A surrogate read from disk and what its card says; the card is empty where there is none."""

    surrogate: Surrogate
    card: dict[str, Any]


def save(surrogate: Surrogate, card: dict[str, Any], folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write the three files, each whole or not at all; the card last."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{WEIGHTS}"
    held = {name: value.to("cpu", dtype).contiguous() for name, value in surrogate.state_dict().items()}
    draft.write_bytes(to_bytes(held))  # its own writer would let nobody but the owner read the file
    draft.replace(folder / WEIGHTS)
    config = {**asdict(surrogate.shape), "features": surrogate.features}
    for name, content in ((CONFIG, config), (CARD, card)):
        draft = folder / f".{name}"
        draft.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(folder / name)


def load(path: Path) -> Stored:
    """A folder of ours, a folder in NVIDIA's layout (no card), or a single .safetensors file (no configuration: the
    shape is read off the tensors). Missing, damaged or inconsistent: :class:`MethodError`.

    Every instance of a method binds a surrogate; as long as its files do not change, all of them share one.
    """
    files = [path / name for name in (WEIGHTS, CONFIG, CARD)] if path.is_dir() else [path]
    stats = [file.stat() for file in files if file.is_file()]
    return _read(path, tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats))


@lru_cache(maxsize=4)
def _read(path: Path, stamps: tuple[tuple[int, int, int], ...]) -> Stored:
    """:func:`load`; ``stamps`` change with the files."""
    if path.is_dir():
        config, card = _json(path / CONFIG, needed=True), read_card(path)
        tensors = _tensors(path / WEIGHTS)
        shape, features = _declared(config, path / CONFIG), str(config.get("features", "hidden"))
        if found := _differences(tensors, shape):
            raise MethodError(f"{path / WEIGHTS} is not what {path / CONFIG} declares ({shape}): {found}")
    elif path.is_file():
        card, features, tensors = {}, "hidden", _tensors(path)
        shape = _read_off(tensors, path)
    else:
        raise MethodError(f"no surrogate at {path}; give a folder with {WEIGHTS} and {CONFIG}, or a .safetensors file")
    surrogate = Surrogate(shape, features)
    surrogate.load_state_dict({name: value.float() for name, value in tensors.items()})
    return Stored(surrogate, card)


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a surrogate folder, empty where there is none."""
    return _json(folder / CARD, needed=False)


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise MethodError(f"no {path.name} in {path.parent}; a surrogate folder needs {WEIGHTS} and {CONFIG}")
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise MethodError(f"{path} is damaged ({error}); fetch or train the surrogate again") from error
    broken = [name for name, value in tensors.items() if not torch.isfinite(value.float()).all()]
    if broken:
        raise MethodError(f"{path} has numbers that are not finite in {', '.join(broken[:3])}; train it again")
    return tensors


def _json(path: Path, needed: bool) -> dict[str, Any]:
    if not path.is_file():
        if needed:
            raise MethodError(f"no {path.name} in {path.parent}; a surrogate folder needs {WEIGHTS} and {CONFIG}")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MethodError(f"{path} is not valid JSON ({error}); fetch or train the surrogate again") from error
    if not isinstance(content, dict):
        raise MethodError(f"{path} must hold a JSON object, it holds {type(content).__name__}")
    return content


def _declared(config: dict[str, Any], path: Path) -> Shape:
    try:
        sizes = {name: int(config[name]) for name in ("input_dim", "output_dim", "n_modules")}
        hidden = config.get("hidden_dim")
        return Shape(**sizes, hidden_dim=None if hidden is None else int(hidden))
    except (KeyError, TypeError, ValueError) as error:
        raise MethodError(
            f"{path} needs the whole numbers input_dim, output_dim, n_modules and hidden_dim (or null); "
            f"it has {json.dumps(config)[:200]}"
        ) from error


def _expected(shape: Shape) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in Surrogate(shape).state_dict().items()}


def _differences(tensors: dict[str, Tensor], shape: Shape) -> str:
    """What is wrong with the tensors of a surrogate of this shape; empty where nothing is."""
    wanted = _expected(shape)
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    wrong = [f"{name} is {found.get(name, 'missing')}, needs {size}" for name, size in wanted.items()]
    wrong = [text for text, (name, size) in zip(wrong, wanted.items(), strict=True) if found.get(name) != size]
    wrong += [f"{name} is not known" for name in found if name not in wanted]
    return "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")


def _read_off(tensors: dict[str, Tensor], path: Path) -> Shape:
    layers = {int(match[1]) for name in tensors if (match := re.match(r"layers\.(\d+)\.", name))}
    first, second = tensors.get("layers.0.weight"), tensors.get("layers.0.2.weight")
    inner = tensors.get("layers.0.0.weight")
    shape = None
    if first is not None and first.dim() == 2:
        shape = Shape(first.shape[1], first.shape[0], None, len(layers))
    elif inner is not None and second is not None and inner.dim() == second.dim() == 2:
        shape = Shape(inner.shape[1], second.shape[0], inner.shape[0], len(layers))
    found = "no tensor layers.0.weight or layers.0.0.weight" if shape is None else _differences(tensors, shape)
    if shape is None or found:
        raise MethodError(
            f"{path} is not a surrogate: {found}; it has {', '.join(sorted(tensors)[:4]) or 'no tensors'}"
        )
    return shape
