"""Where the texts of seven subsets come from: folders, the hub, and what is reported when they are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks import hub
from benchmarks.base import BenchmarkError, Request, Text
from benchmarks.registry import get
from benchmarks.ruler import benchmark as ruler
from benchmarks.ruler.source_texts import ESSAYS, HOTPOTQA, SOURCES, SQUAD
from tests.benchmarks import made_up

RULER = get("ruler")


def content(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_missing_texts_are_reported(text: Text, tmp_path: Path) -> None:
    (note,) = RULER.notes(Request())
    assert note.startswith("ruler: 7 of 13 subsets not run") and "--data" in note and "--subset" in note
    assert all(name in note for name in SOURCES) and "squad/*.json" in note
    made_up.write(tmp_path)
    (tmp_path / "squad" / "dev.json").unlink()
    request = Request(data=tmp_path, lengths=(1024,), limit=1)
    (note,) = RULER.notes(request)
    assert "1 of 13" in note and "qa_1" in note and "niah" not in note
    assert {s.subset for s in RULER.samples(request, text)} == set(RULER.subsets) - {"qa_1"}
    with pytest.raises(BenchmarkError, match=r"has no squad/\*.json \(SQuAD 2.0's dev-v2.0.json\)"):
        RULER.check(Request(data=tmp_path, subsets=("qa_1",)))
    assert RULER.notes(Request(subsets=("vt",))) == ()


def test_file_names_of_nvidias_folder(texts: Path, tmp_path: Path) -> None:
    for name, new in (("paul_graham/PaulGrahamEssays", "PaulGrahamEssays"), ("squad/dev", "squad")):
        (tmp_path / f"{new}.json").write_bytes((texts / f"{name}.json").read_bytes())
    assert ESSAYS.load(tmp_path) == ESSAYS.load(texts) and SQUAD.load(tmp_path) == SQUAD.load(texts)


def test_changed_texts_give_other_samples(text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    generate = ruler.generate
    monkeypatch.setattr(ruler, "generate", lambda *args: made.append(args[0]) or generate(*args))
    request = Request(data=made_up.write(tmp_path), lengths=(1024,), limit=1, subsets=("niah_single_2", "qa_2"))
    first = RULER.samples(request, text)
    assert RULER.samples(request, text) == first and made == ["niah_single_2", "qa_2"]
    essays = {"text": "Another start. " + content(tmp_path, "paul_graham/PaulGrahamEssays.json")["text"]}
    (tmp_path / "paul_graham" / "PaulGrahamEssays.json").write_text(json.dumps(essays))
    again = RULER.samples(request, text)
    assert made == ["niah_single_2", "qa_2", "niah_single_2"]
    assert "Another start." in again[0].context and again[1] == first[1]


def test_rows_of_the_hub(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official = content(texts, "hotpotqa/dev.json")
    columns = {"context": ("title", "sentences"), "supporting_facts": ("title", "sent_id")}
    hotpotqa = [
        {**row, **{name: dict(zip(keys, zip(*row[name], strict=True), strict=True)) for name, keys in columns.items()}}
        for row in official
    ]
    essays = [content(texts, "paul_graham/PaulGrahamEssays.json")]
    squad = made_up.hub_rows(content(texts, "squad/dev.json"))
    sets = {"baber/paul_graham_essays": essays, "rajpurkar/squad_v2": squad, "hotpotqa/hotpot_qa": hotpotqa}
    monkeypatch.setattr(hub, "rows", lambda name, config, split, hint: sets[name])
    for source in (ESSAYS, SQUAD, HOTPOTQA):
        assert source.load(None) == source.load(texts)
    # both layouts side by side are read once
    assert HOTPOTQA.parse([official, hotpotqa]) == HOTPOTQA.load(texts).content


def test_the_hub_is_used_only_for_subsets_requested_by_name(monkeypatch: pytest.MonkeyPatch, text: Text) -> None:
    rows = Mock(side_effect=BenchmarkError("no hub"))
    monkeypatch.setattr(hub, "rows", rows)
    assert len(RULER.samples(Request(lengths=(1024,), limit=1), text)) == 6 and not rows.called
    with pytest.raises(BenchmarkError, match="no hub"):
        RULER.check(Request(subsets=("vt", "qa_2")))
    assert [call.args[0] for call in rows.mock_calls] == ["hotpotqa/hotpot_qa"]


@pytest.mark.parametrize(
    ("file", "broken", "message"),
    [
        ("paul_graham/essays.json", "{", r"essays.json: not valid JSON .*; give .* PaulGrahamEssays.json"),
        ("paul_graham/essays.json", '{"title": 3}', r"not in the layout of essays \(no 'text'\)"),
        ("paul_graham/essays.json", '{"text": " "}', "has no essays; "),
        ("squad/dev.json", '{"data": 5}', "not in the layout of SQuAD"),
        ("squad/dev.json", '{"data": [{"title": "T", "paragraphs": [{"context": 5, "qas": []}]}]}', "is int, not text"),
        ("squad/dev.json", '{"data": []}', "has no SQuAD; expected SQuAD 2.0's dev-v2.0.json"),
        ("hotpotqa/dev.json", '[{"question": "Q"}]', r"dev.json: not in the layout of HotpotQA \(no 'context'\)"),
    ],
)
def test_broken_files_are_named(file: str, broken: str, message: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(broken)
    with pytest.raises(BenchmarkError, match=message):
        RULER.check(Request(data=tmp_path))
