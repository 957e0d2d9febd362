"""``--data`` with every kind of fault: one message, in the same words for all benchmarks, and no traceback."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import benchmarks.registry
from benchmarks.base import BenchmarkError, Request
from benchmarks.data_files import DataPath, parse_json
from benchmarks.fidelity.text_windows import read_texts
from tests.benchmarks.data_rows import ROWS, data_of

READERS = tuple(ROWS)
JSON = json.dumps


def read(name: str, data: Path) -> None:
    """All that a benchmark reads before a run."""
    benchmarks.registry.get(name).check(Request(data=data))
    if name == "fidelity:text":
        read_texts(data)


def refusal(name: str, data: Path) -> str:
    with pytest.raises(BenchmarkError) as error:
        read(name, data)
    message = str(error.value)
    assert "\n" not in message and len(message) < 900
    return message


LINES = [
    (b'{"id": ', "not valid JSON (Expecting value, column "),
    (b"[1, 2]", "expected a JSON object, got a list; give "),
    (b"7", "expected a JSON object, got a number; give "),
    (b"null", "expected a JSON object, got null; give "),
    (b"[" * 20_000, "not valid JSON (nested too deeply); correct or remove the line"),
    (b'{"id": ' + b"9" * 5000 + b"}", "not valid JSON (a number with too many digits); correct or remove the line"),
    (b'{"id": "\\ud800"}', "not valid JSON (half of a surrogate pair, which is not a character); correct or remove"),
    (b"{}", "no column "),
]


@pytest.mark.parametrize("name", READERS)
def test_all_benchmarks_report_a_broken_line_in_the_same_words(name: str, tmp_path: Path) -> None:
    whole = JSON(ROWS[name]).encode() + b"\n"
    for number, (line, message) in enumerate(LINES):
        data = data_of(name, tmp_path / str(number), whole + b"\n" + line + b"\n" + whole)
        found = refusal(name, data)
        assert ".jsonl, line 3: " in found and message in found, found
    found = refusal(name, data_of(name, tmp_path / "latin", whole + '{"id": "é"}\n'.encode("latin-1")))
    assert ".jsonl is not UTF-8 text (line 2: " in found and "; give " in found


@pytest.mark.parametrize("name", READERS)
def test_a_folder_whose_file_is_a_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / ("hotpotqa.jsonl" if name.startswith("longbench") else "rows.jsonl")).mkdir()
    assert f"--data {tmp_path}" in refusal(name, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", READERS)
def test_a_closed_folder_is_not_mistaken_for_an_empty_one(name: str, tmp_path: Path) -> None:
    data_of(name, tmp_path / "closed", JSON(ROWS[name]).encode())
    (tmp_path / "closed").chmod(0)
    try:
        found = refusal(name, tmp_path / "closed")
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert "Permission denied" in found or "is a folder" in found


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark_change_nothing(name: str, ending: str, tmp_path: Path) -> None:
    other = {**ROWS[name], "id": "2", "question": "Why?"}
    lines = [JSON(row, ensure_ascii=False) for row in (ROWS[name], other)]
    read(name, data_of(name, tmp_path / "a", ("\ufeff" + ending.join([*lines, ""])).encode()))


@pytest.mark.parametrize("name", READERS)
def test_packed_files_are_read(name: str, tmp_path: Path) -> None:
    def pack(content: bytes) -> Path:
        folder = tmp_path / str(len(content))
        data = data_of(name, folder, content)
        (path,) = folder.iterdir()
        packed = path.rename(f"{path}.gz")
        return data if data.is_dir() else packed

    rows = [ROWS[name], {**ROWS[name], "id": "2", "question": "Why?"}]
    whole = gzip.compress("\n".join(map(JSON, rows)).encode())
    read(name, pack(whole))
    for damaged in (whole[:-20], b"no gzip"):
        assert "cannot be unpacked: " in refusal(name, pack(damaged))
    assert ".jsonl.gz, line 2: " in refusal(name, pack(gzip.compress(JSON(ROWS[name]).encode() + b"\n{}")))


def test_a_packed_copy_beside_its_file_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}')
    for packed in ("a.jsonl.gz", "b.jsonl.gz"):
        (tmp_path / packed).write_bytes(gzip.compress(b'{"text": "two"}'))
    assert read_texts(tmp_path) == ["one", "two"]
    assert DataPath(tmp_path, "").files(".jsonl") == [tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"]


@pytest.mark.parametrize("name", [name for name in READERS if name != "fidelity:text"])
def test_a_file_of_another_format_is_told_which_is_wanted(name: str, tmp_path: Path) -> None:
    found = refusal(name, data_of(name, tmp_path, b"context,question,answer\nc,q,a\n"))
    assert ", line 1: not valid JSON (" in found and "; give " in found
    assert all(column in found for column in ROWS[name] if column not in ("id", "answer"))


NOT_EMPTY = "must be a text that is not empty, got "
TEXTS, SOME_TEXTS = "must be a list of texts, got ", "must be a text or a list of texts, none of them empty, got "
COUNT = "must be a whole number of "
NUMBER = "answer must be a whole number from 0 to 999, got "


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("aime25", {"id": 7}, f"id {NOT_EMPTY}7"),
        ("aime25", {"question": [1]}, f"question {NOT_EMPTY}[1]"),
        *(("aime25", {"answer": bad}, NUMBER + JSON(bad)) for bad in ("1000", "-1", True, 7.5, 10**30)),
        ("aime25", {"id": None}, "no column id; required: id, question, answer"),
        ("aime25", {"answer": None}, "no column answer; required: id, question, answer"),
        ("fidelity:text", {"text": None}, "text must be a text, got null"),
        ("longbench", {"context": None}, "context must be a text, got null"),
        ("longbench", {"input": ["q"]}, 'input must be a text, got ["q"]'),
        *(("longbench", {"length": bad}, f"length {COUNT}0 or more, got " + JSON(bad)) for bad in (-1, "3", True)),
        *(("longbench", {"answers": bad}, f"answers {TEXTS}" + JSON(bad)) for bad in ([], "one", [1], {"text": ["a"]})),
        ("longbench", {"all_classes": "x"}, f'all_classes {TEXTS}"x"'),
        ("multi-question", {"context": "\n"}, f'context {NOT_EMPTY}"\\n"'),
        ("multi-question", {"question": {"text": "q"}}, f'question {NOT_EMPTY}{{"text": "q"}}'),
        ("multi-question", {"answers": [["a"]]}, 'answers must be a text or a list of texts, got [["a"]]'),
        ("multi-question", {"max_new_tokens": 0}, f"max_new_tokens {COUNT}1 or more, got 0"),
        ("multi-question", {"answer_prefix": 1}, "answer_prefix must be a text, got 1"),
        ("ruler", {"context": "  "}, f'context {NOT_EMPTY}"  "'),
        ("ruler", {"question": None}, "question must be a text, got null"),
        ("ruler", {"task": "vtt"}, "unknown task 'vtt'; known: niah_single_1, "),
        *(("ruler", {"answer": bad}, f"answer {SOME_TEXTS}" + JSON(bad)) for bad in ([], "", [7], [" "])),
        ("ruler", {"max_new_tokens": 1.5}, f"max_new_tokens {COUNT}1 or more, got 1.5"),
    ],
)
def test_a_wrong_value_is_named_with_its_column(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    lines = [JSON(ROWS[name]), JSON({**ROWS[name], "id": "2", **changes})]
    assert f".jsonl, line 2: {message}" in refusal(name, data_of(name, tmp_path, "\n".join(lines).encode()))


@pytest.mark.parametrize(
    ("name", "subset", "content", "message"),
    [
        ("aime25", "", JSON(ROWS["aime25"]) + "\n" + JSON(ROWS["aime25"]), "line 2: the id '1' appears twice"),
        ("aime25", "", "\n", "has no rows; its lines need the columns id, question, answer"),
        ("ruler", "", "", "has no rows; its lines need the columns context, "),
        ("fidelity:text", "", '{"text": " "}\n', "has no text; give a file that has some"),
        ("longbench", "trec", JSON(ROWS["longbench"]), "line 1: all_classes must be a list of texts, got null"),
        ("longbench", "passage_retrieval_en", JSON(ROWS["longbench"]), "passage_retrieval_en must be texts that name"),
        ("longbench", "trec", '{"input": "x"}', "line 1: no column context, answers, length, all_classes; required: "),
        ("longbench", "other", "", "has no SUBSET.jsonl of any of: narrativeqa, "),
        ("multi-question", "", JSON(ROWS["multi-question"]), "no two rows have the same context"),
        ("multi-question", "", '{"context": "c", "question": "q", "answers": []}', "has no question with an answer; "),
    ],
)
def test_a_faulty_file_is_named(name: str, subset: str, content: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(name, data_of(name, tmp_path, content.encode(), subset))


@pytest.mark.parametrize(
    ("name", "place", "content", "message"),
    [
        ("aime25", "", None, "is a folder; aime25 takes a .jsonl file with the columns id, question, answer"),
        ("aime25", "gone.jsonl", None, "cannot be read: No such file"),
        ("fidelity:text", "", None, "is a folder without .txt or .jsonl files; give one that has some"),
        ("fidelity:text", "gone.txt", None, "cannot be read: No such file"),
        ("fidelity:text", "a.txt", b"\xff\xfe\xff", "is not UTF-8 text (line 1: "),
        ("longbench", "gone", None, "does not exist; give a folder of SUBSET.jsonl files"),
        ("longbench", "hotpotqa.jsonl", b"", "is not a folder; give a folder of SUBSET.jsonl"),
        ("multi-question", "gone.json", None, "cannot be read: No such file"),
        ("multi-question", "a.txt", b"x", "is in no known format; give a SQuAD .json file"),
        ("multi-question", "squad.json", b"[1]", "is not in SQuAD's layout (an object whose data lists"),
        ("multi-question", "squad.json", b'{"data": 3}', "is not in SQuAD's layout (an object whose data lists"),
        ("multi-question", "squad.json", b'{"data": [{"title": "t"}]}', "is not in SQuAD's layout (no 'paragraphs'"),
        ("multi-question", "squad.json", b"[" * 20_000, "not valid JSON (nested too deeply); give a SQuAD .json file"),
        ("ruler", "", None, "has none of paul_graham/*.json, squad/*.json, hotpotqa/*.json; give a folder"),
        ("ruler", "gone.jsonl", None, "cannot be read: No such file"),
        ("ruler", "rows.parquet", b"PAR1 and no more", "rows.parquet is not a parquet file ("),
        ("ruler-4k", "", None, "has no .jsonl or .parquet file; its rows need the columns context, "),
    ],
)
def test_a_path_with_something_else(name: str, place: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / place if place else tmp_path
    if content is not None:
        path.write_bytes(content)
    assert message in refusal(name, path)


def test_files_of_two_kinds(tmp_path: Path) -> None:
    for name in ("a.json", "b.jsonl"):
        (tmp_path / name).write_text("{}")
    assert "a folder with files of one kind" in refusal("multi-question", tmp_path)


def test_parquet_with_a_column_of_the_wrong_type(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    row = {name: [value] for name, value in ROWS["ruler"].items()}
    parquet.write_table(pa.table({**row, "context": [b"bytes"]}), tmp_path / "rows.parquet")
    assert f"rows.parquet, row 1: context {NOT_EMPTY}" in refusal("ruler", tmp_path / "rows.parquet")


def test_texts_keep_what_reading_them_as_text_gave(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\r\ntwo\rthree\u2028four\x0c\n".encode())
    assert DataPath(path, "").text() == path.read_text("utf-8") == "one\ntwo\nthree\u2028four\x0c\n"
    path.write_bytes(b"\xef\xbb\xbfone")
    assert DataPath(path, "").text() == "one"


def test_characters_that_look_like_line_ends_stay_in_a_row(tmp_path: Path) -> None:
    path, text = tmp_path / "rows.jsonl", "a\u2028b\x85c\u2029d"
    path.write_text(JSON({"text": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [row for _, row in DataPath(path, "").json_lines()] == [{"text": text}]


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_json('"\\ud83d\\ude00"', "here", "") == "\U0001f600"
