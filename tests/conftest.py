"""Set-up of all tests: no network, and the embedded model where it is already present.

``KVPRUNE_TEST_THREADS=1`` limits torch to that many threads.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import pytest
import torch
import transformers

from harness.files import cache_folder
from harness.models import loading
from harness.models.known_models import DEFAULT_MODEL

if os.environ.get("KVPRUNE_TEST_THREADS"):
    torch.set_num_threads(int(os.environ["KVPRUNE_TEST_THREADS"]))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_model: loads the embedded SmolLM2 (skipped where it is not stored yet)")


@pytest.fixture(scope="session")
def stored_model() -> str:
    """The embedded model's name; skips the test where using it would fetch it."""
    name = DEFAULT_MODEL
    if not any((cache_folder() / "models").glob(f"{name}-transformers-{transformers.__version__}")):
        pytest.skip(f"the embedded model {name} is not in {cache_folder()}; a first run stores it there")
    return name


@pytest.fixture(scope="session")
def smollm2(stored_model: str) -> loading.Loaded:
    """SmolLM2 in float64, as the equality tests need it."""
    return loading.load(stored_model, device="cpu", dtype="float64")
