"""Where a result comes from: versions, commit, hashes of code and data."""

from __future__ import annotations

import hashlib
import inspect
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.base import Sample, content_hash
from harness.engine import eviction
from methods import budgets, compat
from methods.base import Method

PACKAGES = (
    "kvprune",
    "torch",
    "transformers",
    "tokenizers",
    "lm-eval",
    "datasets",
    "numpy",
    "wonderwords",
    "math-verify",
)


def versions() -> dict[str, str]:
    """Python and the packages that can change a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> dict[str, Any]:
    """The commit of the code and whether the tree differs from it; nulls outside a git checkout."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        status = subprocess.run(
            ["git", "status", "--porcelain", "--", "*.py"], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
    return {"commit": head.stdout.strip(), "dirty": bool(status.stdout.strip())}


def method_hash(methods: Sequence[Method]) -> str:
    """Hash of what decides which pairs a method keeps: the source files of its class, of the classes it extends, of the
    budgets and of the evictor, and the weights of its instances in a run."""
    files = {Path(inspect.getfile(cls)) for cls in type(methods[0]).__mro__ if issubclass(cls, Method)}
    files |= {Path(inspect.getfile(module)) for module in (budgets, compat, eviction)}
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        digest.update(file.read_bytes())
    for weights in sorted({method.fingerprint() for method in methods}):
        digest.update(weights.encode())
    return digest.hexdigest()[:16]


def data_hash(samples: Iterable[Sample]) -> str:
    """Hash of every sample, in order."""
    return content_hash([sample.to_json() for sample in samples])


def hardware(device: str) -> str:
    """The device in words."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(torch.device(device))
    return f"CPU, {torch.get_num_threads()} threads"
