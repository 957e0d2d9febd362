"""Where a result comes from: versions, commit, hashes of code and data."""

from __future__ import annotations

import inspect
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.base import Sample, content_hash
from harness.results.method_hash import Definition, code_hash
from methods.base import Method, MethodError

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
    """Hash of what decides which pairs a method keeps: its code (:mod:`harness.results.method_hash`) and the weights of
    its instances in a run. :class:`MethodError` where its source cannot be read."""
    cls = type(methods[0])
    definition = Definition(cls.__module__, cls.__qualname__.partition(".")[0])
    try:
        files = {one.__module__: Path(inspect.getfile(one)) for one in cls.__mro__ if issubclass(one, Method)}
        return code_hash(definition, [method.fingerprint() for method in methods], files)
    except (OSError, TypeError, LookupError, SyntaxError) as error:  # a class typed into a shell
        raise MethodError(
            f"the code of method {cls.name!r} cannot be read ({error}), so a run could not say what it ran; "
            "put its class into a file and load that with --plugin"
        ) from error


def data_hash(samples: Iterable[Sample]) -> str:
    """Hash of every sample, in order."""
    return content_hash([sample.to_json() for sample in samples])


def hardware(device: str) -> str:
    """The device in words."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(torch.device(device))
    return f"CPU, {torch.get_num_threads()} threads"
