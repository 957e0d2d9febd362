"""Files of the Hugging Face hub, with a failure that comes at once and says what to do."""

from __future__ import annotations

from pathlib import Path

from benchmarks.base import BenchmarkError

#: seconds to wait for the hub's first word; without this probe its library tries for more than 20 s
PATIENCE = 5.0


def file(data_set: str, path: str, hint: str) -> Path:
    """A data set's file: from the local cache if it is there, else downloaded.

    hint   how to give a local copy instead, for the error

    Raises :class:`BenchmarkError` where it cannot be had: at once with HF_HUB_OFFLINE=1, else after one attempt to
    reach the hub.
    """
    import huggingface_hub as hub  # late: local rows need none of it

    kept = hub.try_to_load_from_cache(data_set, path, repo_type="dataset")
    if isinstance(kept, str):
        return Path(kept)
    what = f"{path} of the data set {data_set} cannot be had from the hub"
    url = hub.hf_hub_url(data_set, path, repo_type="dataset")
    if hub.constants.is_offline_mode():
        raise BenchmarkError(f"{what}: it is not in the local cache, and HF_HUB_OFFLINE is set; unset it, or {hint}")
    try:
        status = hub.get_session().head(url, timeout=PATIENCE).status_code
        if status >= 400:
            raise OSError(f"HTTP status {status}")
        return Path(hub.hf_hub_download(data_set, path, repo_type="dataset"))
    except Exception as error:  # its errors come from many libraries
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise BenchmarkError(f"{what} ({url}: {type(error).__name__}: {reason}); {hint}") from error
