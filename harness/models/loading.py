"""Names to loaded models: the embedded one, local folders, and models of the Hugging Face hub."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.engine.adapter import FAMILIES, LanguageModel
from harness.errors import HarnessError
from harness.models.embedded import fetch, place_of
from harness.models.known_models import EMBEDDED

#: files of a model folder that can change a result, and the bytes looked at on either end of each
MODEL_FILES = (".json", ".jinja", ".safetensors", ".bin", ".model")
SAMPLED = 2**20


@dataclass
class Loaded:
    """A model ready for the engines, with its tokenizer."""

    lm: LanguageModel
    tokenizer: Any


def config_of(name: str) -> Any:
    """The configuration of a model without its weights. Unknown or unsupported: :class:`HarnessError`."""
    source = _source(name)
    try:
        config = AutoConfig.from_pretrained(source)
    except Exception as error:  # a damaged file makes transformers raise anything
        raise HarnessError(_not_found(name, error)) from error
    family = config.get_text_config().model_type
    if family not in FAMILIES:
        raise HarnessError(f"model {name!r} is of the family {family!r}; supported: {', '.join(FAMILIES)}")
    return config


def load_tokenizer(name: str) -> Any:
    """The model's tokenizer, without the model."""
    source = _source(name)
    try:
        return AutoTokenizer.from_pretrained(source)
    except Exception as error:  # a damaged file makes transformers raise anything
        raise HarnessError(_not_found(name, error)) from error


def load_model(name: str, device: str = "auto", dtype: str = "auto") -> LanguageModel:
    """Load a model. ``dtype`` auto is float32 on a CPU and bfloat16 on an accelerator."""
    chosen = pick_device(device)
    number = pick_dtype(dtype, chosen)
    source = _source(name)
    try:
        read: Any = AutoModelForCausalLM.from_pretrained(source, dtype=number, output_loading_info=True)
    except Exception as error:  # as above
        raise HarnessError(_not_found(name, error)) from error
    model, loading = read
    if loading["missing_keys"]:  # transformers would continue with random weights
        lost = sorted(loading["missing_keys"])
        raise HarnessError(_not_found(name, ValueError(f"{len(lost)} weights are missing, such as {lost[0]}")))
    model.to(chosen)
    return LanguageModel(model, short_name(name))


def load(name: str, device: str = "auto", dtype: str = "auto") -> Loaded:
    """The model and its tokenizer."""
    return Loaded(load_model(name, device, dtype), load_tokenizer(name))


def short_name(name: str) -> str:
    """What results call a model: its name, or the last part of a local folder's path."""
    return Path(name).resolve().name if name not in EMBEDDED and Path(name).is_dir() else name


def files_hash(name: str) -> str | None:
    """Distinguishes local folders of the same name: hash of their files' names, sizes, beginnings and ends. None for
    other models."""
    if name in EMBEDDED or not Path(name).is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(path for path in Path(name).iterdir() if path.suffix in MODEL_FILES and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED))
            file.seek(max(0, size - SAMPLED))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def pick_device(device: str) -> str:
    """``auto`` is the first CUDA device if there is one, else the CPU."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise HarnessError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device != "cpu" and int(device.partition(":")[2] or 0) >= count:
        seen = f"{count} CUDA devices" if count else "no CUDA device"
        raise HarnessError(f"device {device!r} was requested, but torch sees {seen}; use --device cpu or another")
    return device


def pick_dtype(dtype: str, device: str) -> torch.dtype:
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
    if dtype == "auto":
        return torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    if dtype not in kinds:
        raise HarnessError(f"unknown dtype {dtype!r}; use auto, {', '.join(kinds)}")
    return kinds[dtype]


def _source(name: str) -> str:
    return str(fetch(name)) if name in EMBEDDED else name


def _not_found(name: str, error: Exception) -> str:
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    if not isinstance(error, OSError | ValueError):
        reason = f"{type(error).__name__}: {reason}"
    if name in EMBEDDED:
        return f"the stored copy of {name!r} is damaged ({reason}); delete {place_of(name)} and run again"
    kind = "the folder does not hold a readable model" if Path(name).is_dir() else "not a local folder, not loadable"
    return (
        f"model {name!r}: {kind} ({reason}). Give an embedded name ({', '.join(EMBEDDED)}), "
        "a folder with config.json, tokenizer and safetensors, or a Hugging Face name"
    )
