"""Names to loaded models: the embedded one, local folders, and models of the Hugging Face hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.engine.adapter import FAMILIES, LanguageModel
from harness.errors import HarnessError
from harness.files import cache_folder
from harness.models import gguf
from harness.models.embedded import fetch, place_of
from harness.models.identity import files_hash, model_files
from harness.models.known_models import EMBEDDED

#: weights of a checkpoint that a model may leave out: computed anew, or the embeddings' own once more
LEFT_OUT = re.compile(r"(^|\.)rotary_emb\.inv_freq$|^lm_head\.weight$")
#: no model's own code is ever run, whatever its configuration asks for
CODE = {"trust_remote_code": False}


@dataclass
class Loaded:
    """A model ready for the engines, with its tokenizer."""

    lm: LanguageModel
    tokenizer: Any


def config_of(name: str) -> Any:
    """The configuration of a model without its weights. Unknown or unsupported: :class:`HarnessError`."""
    source = _source(name)
    try:
        config = AutoConfig.from_pretrained(source, **CODE)
    except Exception as error:  # a damaged file makes transformers raise anything
        raise HarnessError(_not_found(name, error)) from error
    family = config.get_text_config().model_type
    if family not in FAMILIES:
        raise HarnessError(f"model {name!r} is of the family {family!r}; supported: {', '.join(FAMILIES)}")
    return config


def load_tokenizer(name: str, commit: str | None = None) -> Any:
    """The model's tokenizer, without the model; a hub model's at a ``commit``."""
    source = _source(name)
    if name not in EMBEDDED and Path(source).is_dir() and not any(Path(source).glob("tokenizer*")):
        raise HarnessError(
            f"model {name!r} has no tokenizer beside its weights; copy tokenizer.json and tokenizer_config.json into "
            f"{source}"
        )
    try:
        return AutoTokenizer.from_pretrained(source, revision=commit or "main", **CODE)
    except Exception as error:  # a damaged file makes transformers raise anything
        raise HarnessError(_not_found(name, error)) from error


def load_model(name: str, device: str = "auto", dtype: str = "auto", commit: str | None = None) -> LanguageModel:
    """Load a model, a hub model at a ``commit``. ``dtype`` auto is float32 on a CPU and bfloat16 on an accelerator.

    Model and weights must have the same parameters: with some missing transformers would continue with random ones,
    and with some left over (biases that the configuration turns off, a layer too many) it would drop them.
    """
    chosen = pick_device(device)
    number = pick_dtype(dtype, chosen)
    source = _source(name)
    try:
        read: Any = AutoModelForCausalLM.from_pretrained(
            source, revision=commit or "main", dtype=number, output_loading_info=True, **CODE
        )
    except Exception as error:  # as above
        raise HarnessError(_not_found(name, error)) from error
    model, loading = read
    unused = [key for key in loading["unexpected_keys"] if not LEFT_OUT.search(key)]
    for keys, what in ((loading["missing_keys"], "are missing"), (unused, "have no place in its config.json")):
        if keys:
            raise HarnessError(_not_found(name, ValueError(f"{len(keys)} weights {what}, such as {sorted(keys)[0]}")))
    model.to(chosen)
    return LanguageModel(model, short_name(name))


def load(name: str, device: str = "auto", dtype: str = "auto") -> Loaded:
    """The model and its tokenizer."""
    return Loaded(load_model(name, device, dtype), load_tokenizer(name))


def short_name(name: str) -> str:
    """What results call a model: its name, or the last part of a local path."""
    return Path(name).resolve().name if name not in EMBEDDED and Path(name).exists() else name


def local_hash(name: str) -> str | None:
    """Distinguishes local models of the same name: the hash of all their files' content. None for other models."""
    if name in EMBEDDED or not Path(name).exists():
        return None
    return files_hash(gguf.sources(Path(name)) or model_files(Path(name)))


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
    if name in EMBEDDED:
        return str(fetch(name))
    files = gguf.sources(Path(name))
    return str(gguf.converted(files, files_hash(files), cache_folder() / "models")) if files else name


def _not_found(name: str, error: Exception) -> str:
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    if not isinstance(error, OSError | ValueError):
        reason = f"{type(error).__name__}: {reason}"
    if name in EMBEDDED:
        return f"the stored copy of {name!r} is damaged ({reason}); delete {place_of(name)} and run again"
    kind = "the folder does not hold a readable model" if Path(name).is_dir() else "not a local folder, not loadable"
    return (
        f"model {name!r}: {kind} ({reason}). Give an embedded name ({', '.join(EMBEDDED)}), "
        "a folder with config.json, tokenizer and safetensors, a GGUF file, or a Hugging Face name"
    )
