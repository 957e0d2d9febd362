"""LongBench's rows and prompts, from a folder, an archive, and where the hub cannot be reached."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hub
from benchmarks.base import BenchmarkError, Request, Sample, Text
from benchmarks.longbench import prompts
from benchmarks.longbench.benchmark import BARE, BUCKETS, CATEGORIES, EVEN_TASKS, TASKS
from benchmarks.registry import get
from tests.benchmarks.data_rows import ROWS


def write(folder: Path, **files: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    return folder


def numbered(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {**ROWS["longbench"], "input": f"question {i}", "context": f"document {i}", **changes} for i in range(count)
    ]


def samples(data: Path, text: Text, name: str = "longbench", **more: Any) -> list[Sample]:
    request = Request(data=data, **more)
    get(name).check(request)
    return get(name).samples(request, text)


def test_prompts_are_thudms(longbench_data: Path) -> None:
    theirs, limits = (
        json.loads((longbench_data / "config" / f"dataset2{name}.json").read_text("utf-8"))
        for name in ("prompt", "maxlen")
    )
    for subset in TASKS:
        ours = prompts.template(subset).replace("{{context}}", "{context}").replace("{{question}}", "{input}")
        assert (ours, prompts.answer_limit(subset)) == (theirs[subset], limits[subset])
    assert set(theirs) == set(TASKS)


def test_every_real_row_gives_the_template_filled_in(longbench_data: Path, text: Text) -> None:
    folder = longbench_data / "minilongbench"
    theirs = json.loads((longbench_data / "config" / "dataset2prompt.json").read_text("utf-8"))
    rows = {
        subset: [json.loads(line) for line in (folder / f"{subset}.jsonl").read_text("utf-8").splitlines()]
        for subset in TASKS
    }
    found = samples(folder, text)
    assert len(found) == sum(map(len, rows.values())) == 237
    for sample in found:
        row = rows[sample.subset][int(sample.sample_id.split("/")[2].split("-")[0])]
        filled = theirs[sample.subset].replace("{context}", "\0").replace("{input}", row["input"])
        assert sample.context + sample.question + sample.answer_prefix == filled.replace("\0", row["context"])
        assert sample.context[sample.cut_from :] == row["context"]
        assert sample.references == tuple(row["answers"]) and sample.all_classes == tuple(row["all_classes"] or ())
        assert sample.chat_template == (sample.subset not in BARE)
        assert sample.answer_prefix.strip()[-1] in ":：" and "\n" not in sample.answer_prefix.strip()


@pytest.mark.parametrize(
    ("subset", "question", "asked", "answer_prefix"),
    [
        ("multifieldqa_en", "Who?", "Question: Who?\n", "Answer:"),
        ("gov_report", "", "summary of the report.\n\n", "Summary:"),
        ("trec", "Question: Who?\nType:", "\nQuestion: Who?\n", "Type:"),
        ("triviaqa", "Question: Who?\nAnswer:\n", "\n\nQuestion: Who?\n", "Answer:\n"),
        ("samsum", "Dialogue: A: hi\r\nSummary: ", "\n\nDialogue: A: hi\r\n", "Summary: "),
        ("passage_count", "", "1, 2, 3, and so on.\n\n", "The final answer is: "),
        ("lcc", "", "", "Next line of code:\n"),
        ("repobench-p", "def f(a={}):\n", "def f(a={}):\n", "Next line of code:\n"),
        ("qasper", "Is {{context}} a field?", "Question: Is {{context}} a field?\n\n", "Answer:"),
    ],
)
def test_question_and_answer_prefix(subset: str, question: str, asked: str, answer_prefix: str) -> None:
    made = prompts.prompt(subset, "The {{question}} document.", question)
    assert made.context[made.document :] == "The {{question}} document."
    assert made.question.endswith(asked) and made.answer_prefix == answer_prefix


def test_the_first_rows_of_each_subset(tmp_path: Path, text: Text) -> None:
    data = write(tmp_path / "rows", hotpotqa=numbered(5), qasper=numbered(3), other=[{"no": "columns"}])
    everything = samples(data, text)
    found = samples(data, text, limit=2)
    assert [sample.subset for sample in found] == ["qasper", "qasper", "hotpotqa", "hotpotqa"]
    assert "document 0" in found[2].context and "document 1" in found[3].context
    assert samples(data, text, subsets=("hotpotqa",)) == [one for one in everything if one.subset == "hotpotqa"]
    assert len({one.sample_id for one in everything}) == 8 and all(one in everything for one in found)


def test_questions_on_one_document_are_neighbours(tmp_path: Path, text: Text) -> None:
    rows = numbered(4)
    rows[3]["context"] = rows[0]["context"]
    found = samples(write(tmp_path / "rows", hotpotqa=rows), text)
    assert [sample.sample_id.split("/")[2][0] for sample in found] == ["0", "3", "1", "2"]
    assert found[0].context_id == found[1].context_id


def test_thudms_archive_gives_the_same_samples(tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(tmp_path / "rows", hotpotqa=numbered(3), hotpotqa_e=numbered(2, length=9000))
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in data.iterdir():
            packed.write(file, f"data/{file.name}")
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(hub, "file", lambda *args: asked.append(args) or archive)
    for name in ("longbench", "longbench_e"):
        assert get(name).samples(Request(), text) == samples(data, text, name)
    assert {args[:2] for args in asked} == {("THUDM/LongBench", "data.zip")}
    archive.write_bytes(b"cut off")
    with pytest.raises(BenchmarkError, match=r"data.zip cannot be read .*; download data.zip"):
        get("longbench").check(Request())


def test_groups_cover_the_subsets() -> None:
    plain, even = get("longbench"), get("longbench_e")
    assert len(plain.subsets) == len(set(plain.subsets)) == 21
    assert list(plain.groups) == [*CATEGORIES, "without_trec"]
    assert sorted(s for name in CATEGORIES for s in plain.groups[name]) == sorted(plain.subsets)
    assert len(EVEN_TASKS) == 13 and len(even.subsets) == 39
    assert all(even.groups[bucket] == tuple(f"{task}:{bucket}" for task in EVEN_TASKS) for bucket in BUCKETS)
    assert even.groups["trec"] == ("trec:0-4k", "trec:4-8k", "trec:8k+")
    assert even.groups["code"] == even.groups["lcc"] + even.groups["repobench-p"]
    for one in (plain, even):
        trec = {subset for subset in one.subsets if subset.startswith("trec")}
        assert set(one.subsets) - set(one.groups["without_trec"]) == trec and not one.shareable


@pytest.mark.parametrize(
    ("length", "bucket"), [(0, "0-4k"), (3999, "0-4k"), (4000, "4-8k"), (7999, "4-8k"), (8000, "8k+"), (90000, "8k+")]
)
def test_lengths_of_longbench_e(tmp_path: Path, text: Text, length: int, bucket: str) -> None:
    (sample,) = samples(write(tmp_path / "rows", lcc_e=numbered(1, length=length)), text, "longbench_e")
    assert sample.subset == f"lcc:{bucket}"
    assert get("longbench_e").score(sample, "a").score == 100 and not sample.chat_template


def test_rows_of_longbench_e(tmp_path: Path, text: Text) -> None:
    long, short = numbered(3, length=9000), numbered(4)
    data = write(tmp_path / "rows", hotpotqa=numbered(9), hotpotqa_e=[*long, *short], qasper=numbered(2))
    found = samples(data, text, "longbench_e")
    counts = {name: sum(sample.subset == name for sample in found) for name in {s.subset for s in found}}
    assert counts == {"hotpotqa:0-4k": 4, "hotpotqa:8k+": 3, "qasper:0-4k": 2}
    limited = samples(data, text, "longbench_e", limit=1)
    assert [sample.subset for sample in limited] == ["qasper:0-4k", "hotpotqa:0-4k", "hotpotqa:8k+"]
    asked = samples(data, text, "longbench_e", subsets=("hotpotqa:8k+",))
    assert {sample.subset for sample in asked} == {"hotpotqa:8k+"} and len(asked) == 3
