"""Data sets and files of the Hugging Face hub: one attempt, and an error that says what to do without it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.base import BenchmarkError

#: seconds to wait for the hub's answer
PATIENCE = 10.0


def rows(name: str, config: str | None, split: str, hint: str) -> list[dict[str, Any]]:
    """All rows of a split of the data set ``name``. ``hint`` says how to give a local copy.

    The hub is asked for the data set once before its library is used, which would retry for 20 s and more. With
    ``HF_HUB_OFFLINE=1`` only the hub's cache is used.
    Raises :class:`BenchmarkError` with the reason and the hint.
    """
    what = f"the data set {name}" + (f" ({config}, {split})" if config else f" ({split})")
    try:
        return _rows(name, config, split)
    except ImportError as error:
        raise BenchmarkError(f"{what} needs the package datasets, which does not load ({error}); {hint}") from error
    except Exception as error:  # whatever the libraries raise, the user can do the same about it
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        offline = _offline()
        where = "is not in the cache of the Hugging Face hub, and HF_HUB_OFFLINE is set" if offline else None
        where = where or f"is not available from the Hugging Face hub ({reason})"
        raise BenchmarkError(f"{what} {where}; {hint}") from error


@cache
def _rows(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
    if not _offline():
        from huggingface_hub import HfApi

        HfApi().dataset_info(name, timeout=PATIENCE)
    import datasets

    return [dict(row) for row in datasets.load_dataset(name, config, split=split)]


def file(data_set: str, path: str, hint: str) -> Path:
    """A data set's file: from the local cache if it is there, else downloaded.

    hint   how to give a local copy instead, for the error

    Raises :class:`BenchmarkError` if it is not available: at once with HF_HUB_OFFLINE=1, else after one attempt to
    reach the hub.
    """
    import huggingface_hub  # late: local rows need none of it

    kept = huggingface_hub.try_to_load_from_cache(data_set, path, repo_type="dataset")
    if isinstance(kept, str):
        return Path(kept)
    what = f"{path} of the data set {data_set} is not available from the hub"
    url = huggingface_hub.hf_hub_url(data_set, path, repo_type="dataset")
    if _offline():
        raise BenchmarkError(f"{what}: it is not in the local cache, and HF_HUB_OFFLINE is set; unset it, or {hint}")
    try:
        status = huggingface_hub.get_session().head(url, timeout=PATIENCE).status_code
        if status >= 400:
            raise OSError(f"HTTP status {status}")
        return Path(huggingface_hub.hf_hub_download(data_set, path, repo_type="dataset"))
    except Exception as error:  # its errors come from many libraries
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise BenchmarkError(f"{what} ({url}: {type(error).__name__}: {reason}); {hint}") from error


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)
