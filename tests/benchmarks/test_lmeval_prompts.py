"""The contract with lm-eval: its constants are the ones that the generators were written for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import lmeval_prompts
from benchmarks.base import BenchmarkError, Request
from benchmarks.registry import get


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Makes a copy of lm-eval's folder of a benchmark, to be changed."""
    original = lmeval_prompts._folder

    def forget() -> None:
        lmeval_prompts.templates.cache_clear()
        lmeval_prompts.longbench.cache_clear()

    def copy(benchmark: str) -> Path:
        folder = Path(shutil.copytree(original(benchmark), tmp_path / benchmark))
        monkeypatch.setattr(lmeval_prompts, "_folder", lambda *_: folder)
        forget()
        return folder

    yield copy
    forget()


@pytest.mark.parametrize(
    ("benchmark", "file", "old", "new", "changed"),
    [
        ("ruler", "vt_utils.py", "assgined", "assigned", "vt_prefix"),
        ("ruler", "niah_utils.py", "Some special", "Certain special", "niah"),
        ("ruler", "prepare_niah.py", 'NEEDLE = "One', 'NEEDLE = "A', "needle"),
        ("ruler", "qa_utils.py", "Document {i}", "Text {i}", "document"),
        ("ruler", "cwe.yaml", "max_gen_toks: 120", "max_gen_toks: 121", "max_new_tokens"),
        ("ruler", "fwe_utils.py", "CONFIG", "SETTINGS", "fwe, fwe_prefix"),
        ("ruler", "cwe_utils.py", "import", "imp ort", "cwe, cwe_prefix"),
        ("longbench", "lcc.yaml", "Next line of code", "The next line of code", "lcc"),
        ("longbench", "gov_report.yaml", "max_gen_toks: 512", "max_gen_toks: 500", "gov_report"),
        ("longbench", "trec.yaml", "{{question}}", "{{input}}", "trec"),
        ("longbench", "vcsum.yaml", "task:", "[", "vcsum"),
    ],
)
def test_a_changed_text_is_noticed(
    copied: Callable[[str], Path], benchmark: str, file: str, old: str, new: str, changed: str
) -> None:
    path = copied(benchmark) / file
    content = path.read_text("utf-8")
    assert old in content
    path.write_text(content.replace(old, new), "utf-8")
    with pytest.raises(BenchmarkError, match=rf" differs from 0.4.13 in .*: {changed}; .*'lm-eval==0.4.13'"):
        get(benchmark).check(Request())


def test_missing_files_are_noticed(copied: Callable[[str], Path]) -> None:
    folder = copied("ruler")
    (folder / "vt_utils.py").unlink()
    (folder / "fwe.yaml").unlink()
    with pytest.raises(BenchmarkError, match="in RULER texts: max_new_tokens, vt, vt_first, vt_next, vt_prefix;"):
        lmeval_prompts.templates()


def test_another_version_with_the_same_texts_is_accepted(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied("ruler")
    monkeypatch.setattr(lmeval_prompts, "installed_version", lambda: "0.5.0")
    assert lmeval_prompts.templates().noise.startswith("The grass is green.")


def test_the_installed_lm_eval_is_the_pinned_one() -> None:
    assert lmeval_prompts.installed_version() == lmeval_prompts.PINNED


def test_longbench_e_has_the_same_prompts_and_limits() -> None:
    assert set(lmeval_prompts.LONGBENCH_HASHES) == set(get("longbench").subsets)
    for name, task in lmeval_prompts.raw_longbench().items():
        even = lmeval_prompts._task_file(f"{name}_e.yaml", "longbench")
        if even:
            assert (even["doc_to_text"], lmeval_prompts._limit_of(even)) == task


def test_missing_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmeval_prompts, "find_spec", lambda name: None)
    lmeval_prompts._folder.cache_clear()
    lmeval_prompts.templates.cache_clear()
    with pytest.raises(BenchmarkError, match=r"lm-eval, which is not installed; .*pip install 'lm-eval==0.4.13'"):
        get("ruler").check(Request())
