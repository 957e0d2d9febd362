"""The file of a sample's masks: what goes in comes out, and nothing else gets through."""

from __future__ import annotations

import json
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.results import mask_file
from harness.results.mask_file import About, StoredMasks, file_name, read, write

SHAPE = (3, 2, 13)


def about(variants: tuple[str, ...] = ("full", "a", "b", "c"), **more: Any) -> About:
    place: dict[str, Any] = {"sample_id": "s/1", "context_id": "c", "benchmark": "toy", "subset": "red", "length": 13}
    return About(**{**place, "shape": SHAPE, "prefix": 2, "cut": 0, "variants": variants, **more})


def some_masks(count: int = 4, shape: tuple[int, int, int] = SHAPE) -> np.ndarray[Any, Any]:
    keep = np.random.default_rng(1).random((count, *shape)) < 0.4
    keep[0] = True
    return keep


def stored(path: Path, **more: Any) -> Path:
    write(path, about(), some_masks(), **{"tokens": [f" t{i}" for i in range(13)], **more})
    return path


def parts_of(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def as_json(value: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def equal(one: StoredMasks, other: StoredMasks) -> bool:
    same = all(np.array_equal(one.kept(v), other.kept(v)) for v in one.variants)
    return one.about == other.about and one.tokens == other.tokens and same


@pytest.mark.parametrize("shape", [(3, 2, 13), (1, 1, 8), (2, 3, 0), (0, 3, 5), (4, 1, 1)])
def test_what_is_written_is_read(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    keep = some_masks(3, shape)
    tokens = ["", "ü", "日本\n", "\U0001f9ea", '"\x00', "\ufffd", " ", *["x"] * 20][: shape[2]]
    names = ("full", "knorm head 0.5", "é tau=-4")
    write(tmp_path / "new" / "m.npz", about(names, shape=shape, prefix=0), keep, tokens)
    found = read(tmp_path / "new" / "m.npz")
    assert (found.shape, found.variants, found.tokens, found.lengths) == (shape, names, tuple(tokens), None)
    for name, mask in zip(names, keep, strict=True):
        assert np.array_equal(found.kept(name), mask)
        assert found.kept(name).dtype == bool
        layers, heads, cached = shape
        by_token = [np.mean([mask[i, h, t] for i in range(layers) for h in range(heads)] or [1]) for t in range(cached)]
        by_head = [[np.mean(list(mask[i, h]) or [1]) for h in range(heads)] for i in range(layers)]
        assert np.allclose(found.share_by_token(name), by_token)
        assert np.allclose(found.share_by_head(name).ravel(), np.ravel(by_head))
        assert found.share_by_head(name).shape == (layers, heads)
        assert found.removed(name) == pytest.approx(1 - mask.mean() if mask.size else 0)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["m.npz"]


def test_equal_masks_are_stored_once_as_bits_that_numpy_reads_without_pickle(tmp_path: Path) -> None:
    keep = some_masks(5)
    keep[3], keep[4] = keep[1], keep[0]
    files = [tmp_path / name for name in ("1.npz", "2.npz")]
    for file in files:
        write(file, about(("full", "a", "b", "c", "d")), keep, [f" t{i}" for i in range(13)])
    parts = parts_of(files[0])
    kinds = {name: part.dtype.str for name, part in parts.items()}
    assert kinds == {"about": "|u1", "masks": "|u1", "index": "<i4", "tokens": "|u1"}
    assert np.array_equal(parts["masks"], np.packbits(keep[:3].reshape(3, -1), axis=1))
    assert parts["index"].tolist() == [0, 1, 2, 1, 0]
    assert parts["tokens"].tobytes().startswith(b'[" t0"')
    assert files[0].read_bytes() == files[1].read_bytes()


def test_lengths_stand_in_for_texts_that_may_not_be_redistributed(tmp_path: Path) -> None:
    found = read(stored(tmp_path / "m.npz", tokens=None, lengths=list(range(13))))
    assert found.tokens is None and found.lengths is not None
    assert found.lengths.tolist() == list(range(13))
    with pytest.raises(HarnessError, match=r"no mask of variant 'z' is stored for s/1; there are: full, a, b, c"):
        found.kept("z")


def test_file_names_stay_in_their_folder_and_apart() -> None:
    ids = ["a/b", "a-b", "a_b", "A/B", "../../etc/passwd", "/", "", ".", "..", "\x00", "é" * 300, "x" * 300, "x" * 301]
    ids += ["con", "a\\b", "a b", "\ud800", "日本"]
    names = [file_name(one) for one in ids]
    assert len({name.lower() for name in names}) == len(ids)
    for name in names:
        assert Path(name).name == name and not name.startswith(".") and name.isascii() and len(name) < 100
    assert file_name("needles/keys_1/1024/0/0").startswith("needles-keys-1-1024-0-0-")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(tmp_path / "m.npz")
    before = path.read_bytes()

    def full(file: Any, **_: Any) -> None:
        file.write(b"PK half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(HarnessError, match="no space left"):
        write(path, about(), some_masks())
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["m.npz"]


def test_masks_that_could_not_be_read_back_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MOST_BYTES": 2000, "MOST_TEXT": 50, "MOST_PAIRS": 77}.items():
        with monkeypatch.context() as patched:
            patched.setattr(mask_file, name, value)
            with pytest.raises(HarnessError, match="too large to store"):
                stored(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_the_message_on_a_missing_or_foreign_file_names_it_and_the_way_out(tmp_path: Path) -> None:
    for name, data in {"empty": b"", "text": b"not a zip", "end": b"PK\x05\x06" + b"\x00" * 18}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    np.savez_compressed(tmp_path / "other.npz", x=np.arange(3))
    np.savez_compressed(tmp_path / "pickle.npz", about=np.array([{"a": 1}], dtype=object))
    for path in (*tmp_path.iterdir(), tmp_path / "missing"):
        with pytest.raises(HarnessError, match=r"cannot be read as stored masks.*--store-masks") as caught:
            read(path)
        assert str(path) in str(caught.value)


ABOUT = about().model_dump(mode="json")


@pytest.mark.parametrize(
    "change",
    [
        *({"about": as_json({**ABOUT, "shape": [3, 2, last]})} for last in (-13, 14, 2**29)),
        *({"about": as_json({**ABOUT, **more})} for more in ({"prefix": 14}, {"variants": ["full", "a", "a", "b"]})),
        *({"about": as_json({**ABOUT, **more})} for more in ({"shape": [2**29] * 3}, {"format": "kvprune masks 2"})),
        {"about": as_json({"format": "kvprune masks 1"})},
        *({"about": np.frombuffer(data, np.uint8)} for data in (b"[" * 100_000, b"\xff\xfe")),
        *({"index": np.array(index, np.int32)} for index in ([0, 1, 2, 4], [0, 1, 2, -1], [0, 1, 2])),
        *({"index": np.array([0, 1, 2, 3], kind)} for kind in (np.int64, ">i4")),
        *({"masks": np.zeros(shape, np.uint8)} for shape in ((4, 9), 40)),
        {"masks": np.asfortranarray(np.zeros((4, 10), np.uint8))},
        *({"tokens": as_json(tokens)} for tokens in (["x"] * 12, [1] * 13, {"a": 1})),
        {"more": np.zeros(1)},
        *({name: None} for name in ("about", "masks", "index")),
    ],
    ids=str,
)
def test_parts_that_do_not_fit_or_are_missing_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = stored(tmp_path / "m.npz")
    whole = parts_of(path)
    np.savez_compressed(path, **whole)
    assert equal(read(path), read(stored(tmp_path / "again.npz")))  # packed again as it was, it reads as before
    np.savez_compressed(path, **{name: part for name, part in {**whole, **change}.items() if part is not None})
    missing = "".join(name for name, part in change.items() if part is None)
    with pytest.raises(HarnessError, match=f"cannot be read as stored masks.*{missing}"):
        read(path)


def zipped(path: Path, parts: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in parts.items():
            archive.writestr(f"{name}.npy", data)
    return path


def raw(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): archive.read(info) for info in archive.infolist()}


def test_a_part_that_unpacks_to_more_than_it_may_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_file, "MOST_BYTES", 2**20)
    path = stored(tmp_path / "m.npz")
    bomb = zipped(tmp_path / "bomb.npz", {**raw(path), "masks": raw(path)["masks"] + bytes(2**24)})
    assert bomb.stat().st_size < 2**16
    # one that lies about its size: its directory says what the part should have
    true, small = (struct.pack("<I", len(raw(one)["masks"])) for one in (bomb, path))
    assert bomb.read_bytes().count(true) == 2
    (tmp_path / "lying.npz").write_bytes(bomb.read_bytes().replace(true, small))
    sizes = [0]  # of what decompression returns
    real = zipfile.ZipExtFile._read1  # type: ignore[attr-defined]

    def watching(self: Any, n: int) -> bytes:
        sizes.append(len(data := real(self, n)))
        return bytes(data)

    monkeypatch.setattr(zipfile.ZipExtFile, "_read1", watching)
    with pytest.raises(HarnessError, match="masks is too large"):
        read(bomb)
    with pytest.raises(HarnessError):
        read(tmp_path / "lying.npz")
    assert max(sizes) < 2**17


def test_headers_of_arrays_are_not_believed(tmp_path: Path) -> None:
    path = stored(tmp_path / "m.npz")
    for shape in ("(4, 10000000000000)", "(4, -10)", "(-4, -10)", "(4.0, 10)", "((4,), 10)", "()", "(4, 10, 1)"):
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
        zipped(tmp_path / "h.npz", {**raw(path), "masks": header + raw(path)["masks"][-40:]})
        with pytest.raises(HarnessError):
            read(tmp_path / "h.npz")


def test_a_directory_of_many_names_or_another_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="too large"):
        read(zipped(tmp_path / "m.npz", {f"part{number}": b"" for number in range(200)}))
    for kind in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(HarnessError, match="another way"):
            read(zipped(tmp_path / "m.npz", raw(stored(tmp_path / "ok.npz")), kind))


def test_a_damaged_file_never_gives_other_masks(tmp_path: Path) -> None:
    path = stored(tmp_path / "m.npz")
    whole, right = path.read_bytes(), read(path)
    chance = random.Random(0)
    refused = 0
    for trial in range(600):
        data, start = bytearray(whole), chance.randrange(len(whole))
        if trial % 3 == 0:
            data[start] ^= 1 << chance.randrange(8)
        elif trial % 3 == 1:
            del data[start:]
        else:
            data[start : start + 8] = chance.randbytes(8)
        path.write_bytes(data)
        try:
            assert equal(read(path), right)  # such as a date that nobody reads
        except HarnessError:
            refused += 1
    assert refused > 400


def test_damage_under_a_valid_checksum_is_refused_or_gives_whole_masks(tmp_path: Path) -> None:
    parts = raw(stored(tmp_path / "ok.npz"))
    chance = random.Random(1)
    for _ in range(600):
        name = chance.choice(sorted(parts))
        data = bytearray(parts[name])
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            found = read(zipped(tmp_path / "m.npz", {**parts, name: bytes(data)}))
        except HarnessError:
            continue
        assert all(found.kept(variant).shape == found.shape for variant in found.variants)
        assert found.tokens is not None and len(found.tokens) == found.shape[2]
