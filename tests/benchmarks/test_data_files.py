"""``--data`` as a clumsy user gives it: one message, in one wording for all benchmarks, and no traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import benchmarks.registry
from benchmarks.base import BenchmarkError, Request
from benchmarks.data_files import DataPath, decoded

ROWS: dict[str, dict[str, Any]] = {
    "aime25": {"id": "1", "question": "1 + 1?", "answer": 2},
    "multi-question": {"context": "Words.", "question": "Which?", "answers": ["a"]},
    "ruler": {"context": "c", "question": "q", "answer_prefix": "", "answer": "x", "task": "vt", "max_new_tokens": 3},
    "longbench": {"input": "q", "context": "c", "answers": ["a"], "length": 3, "all_classes": None},
    "fidelity:text": {"text": "words and words"},
}
ROWS["ruler-4k"], ROWS["longbench_e"] = ROWS["ruler"], ROWS["longbench"]
READERS = tuple(ROWS)


def file_of(name: str, folder: Path, data: bytes) -> Path:
    """A file with this content where the benchmark looks for its rows; what to give as ``--data``."""
    folder.mkdir(exist_ok=True)
    path = folder / ("hotpotqa.jsonl" if name.startswith("longbench") else "rows.jsonl")
    path.write_bytes(data)
    return folder if name.startswith("longbench") else path


def read(name: str, data: Path) -> None:
    """All that a benchmark reads before a run."""
    benchmark = benchmarks.registry.get(name)
    request = Request(data=data)
    benchmark.check(request)
    if name == "fidelity:text":
        from benchmarks.fidelity.text_windows import read_texts

        read_texts(data)


def refusal(name: str, data: Path) -> str:
    with pytest.raises(BenchmarkError) as error:
        read(name, data)
    text = str(error.value)
    assert "\n" not in text and len(text) < 900
    return text


LINES = [
    (b'{"id": ', "no JSON (Expecting value, column "),
    (b"[1, 2]", "a JSON object is needed, got a list; give "),
    (b"7", "a JSON object is needed, got a number; give "),
    (b"null", "a JSON object is needed, got null; give "),
    (b"[" * 20_000, "no JSON (nested too deeply); mend or remove the line"),
    (b'{"id": ' + b"9" * 5000 + b"}", "no JSON (a number with too many digits); mend or remove the line"),
    (b'{"id": "\\ud800"}', "no JSON (half of a surrogate pair, which is no character); mend or remove the line"),
    (b"{}", "no column "),
]


@pytest.mark.parametrize("name", READERS)
def test_a_broken_line_is_told_in_the_same_words_by_all(name: str, tmp_path: Path) -> None:
    whole = json.dumps(ROWS[name]).encode() + b"\n"
    for number, (line, message) in enumerate(LINES):
        data = file_of(name, tmp_path / str(number), whole + b"\n" + line + b"\n" + whole)
        told = refusal(name, data)
        assert ".jsonl, line 3: " in told and message in told, told
    told = refusal(name, file_of(name, tmp_path / "latin", whole + '{"id": "é"}\n'.encode("latin-1")))
    assert "rows.jsonl is no UTF-8 text (line 2: " in told.replace("hotpotqa", "rows") and "; give " in told


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("data", ["x" * 400, "a\0b"])
def test_a_path_that_cannot_be_looked_at(name: str, data: str) -> None:
    with pytest.raises(BenchmarkError, match=r"--data .* cannot be read: .*give a path that this user can open"):
        read(name, Path(data))


@pytest.mark.parametrize("name", READERS)
def test_a_folder_whose_file_is_a_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / ("hotpotqa.jsonl" if name.startswith("longbench") else "rows.jsonl")
    folder.mkdir()
    told = refusal(name, tmp_path)
    assert f"--data {tmp_path}" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", READERS)
def test_a_closed_folder_is_not_taken_for_an_empty_one(name: str, tmp_path: Path) -> None:
    file_of(name, tmp_path / "closed", json.dumps(ROWS[name]).encode())
    (tmp_path / "closed").chmod(0)
    try:
        told = refusal(name, tmp_path / "closed")
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert "Permission denied" in told or "is a folder" in told


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark_change_nothing(name: str, ending: str, tmp_path: Path) -> None:
    other = {**ROWS[name], "id": "2", "question": "Why?"}
    lines = [json.dumps(row, ensure_ascii=False) for row in (ROWS[name], other)]
    read(name, file_of(name, tmp_path / "a", ("\ufeff" + ending.join([*lines, ""])).encode()))


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("ruler", "context", "  "),
        ("ruler", "answer", [" "]),
        ("ruler", "question", None),
        ("ruler", "max_new_tokens", 1.5),
        ("longbench", "length", -1),
        ("longbench", "input", ["q"]),
        ("longbench", "answers", {"text": ["a"]}),
        ("multi-question", "context", "\n"),
        ("multi-question", "answers", [["a"]]),
        ("multi-question", "question", {"text": "q"}),
        ("aime25", "id", 7),
        ("aime25", "question", [1]),
        ("aime25", "answer", 10**30),
        ("fidelity:text", "text", None),
    ],
)
def test_a_value_of_another_kind_is_told_with_its_column(name: str, column: str, value: Any, tmp_path: Path) -> None:
    row = {**ROWS[name], column: value}
    told = refusal(name, file_of(name, tmp_path, json.dumps(row).encode()))
    assert f", line 1: {column} must be " in told and f"got {json.dumps(value)}" in told


def test_texts_keep_what_reading_them_as_text_gave(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\r\ntwo\rthree\u2028four\x0c\n".encode())
    assert DataPath(path, "").text() == path.read_text("utf-8") == "one\ntwo\nthree\u2028four\x0c\n"
    path.write_bytes(b"\xef\xbb\xbfone")
    assert DataPath(path, "").text() == "one"


def test_characters_that_look_like_line_ends_stay_in_a_row(tmp_path: Path) -> None:
    path, text = tmp_path / "rows.jsonl", "a\u2028b\x85c\u2029d"
    path.write_text(json.dumps({"text": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [row for _, row in DataPath(path, "").objects()] == [{"text": text}]


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert decoded('"\\ud83d\\ude00"', "here") == "\U0001f600"


def test_parquet_of_another_kind(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    row = {name: [value] for name, value in ROWS["ruler"].items()}
    parquet.write_table(pa.table({**row, "context": [b"bytes"]}), path)
    assert "rows.parquet, row 1: context must be a text that is not empty, got " in refusal("ruler", path)
    path.write_bytes(b"PAR1 and no more")
    assert "rows.parquet is no parquet file (" in refusal("ruler", path)


def test_squad_of_another_layout(tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    for content, message in (
        ("[1]", "is not laid out as SQuAD (an object whose data lists articles"),
        ('{"data": 3}', "is not laid out as SQuAD (an object whose data lists articles"),
        ('{"data": [{"title": "t"}]}', "is not laid out as SQuAD (no 'paragraphs' where there should be one); give "),
        ("[" * 20_000, "no JSON (nested too deeply); give a SQuAD .json file"),
    ):
        path.write_text(content, "utf-8")
        assert message in refusal("multi-question", path)
