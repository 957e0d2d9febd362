"""Prompt texts of RULER and LongBench, read out of the installed lm-eval. The only file that knows lm-eval.

Nothing of lm-eval is imported: its NIAH module takes 7-22 s and over 1 GB to import. The constants are read from its
source files instead, and their hashes are compared with the ones this code was written for, so that another wording is
noticed. Where lm-eval's text differs from NVIDIA/RULER's, NVIDIA's is restored here (see :func:`templates`);
LongBench's are passed on unchanged (:func:`longbench`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.base import BenchmarkError

#: the version whose constants have the hashes below
PINNED = "0.4.13"
REMEDY = f"install the pinned one: pip install 'lm-eval=={PINNED}'"

#: first 16 hex digits of the SHA-256 of each constant, as found by :func:`raw_constants`
HASHES: dict[str, str] = {
    "niah": "dfcbeb9afe40ccea",
    "niah_prefix": "a3230c728cd05db9",
    "niah_prefix_many": "c7e26fb1b5b46c2d",
    "needle": "2e0f8fa48964f5a0",
    "noise": "50513c38b3b0b136",
    "vt": "c62e7ad15fd37702",
    "vt_prefix": "222a251c7edbb668",
    "vt_first": "785132ef078dedf3",
    "vt_next": "1a1ac044c61122ef",
    "cwe": "07fdaa80bc2e294e",
    "cwe_prefix": "dc68b935080e048a",
    "fwe": "0a4597ca3bfec4cf",
    "fwe_prefix": "b76eac088cf59d16",
    "qa": "dea27bed8c8d5c09",
    "qa_prefix": "82e02acf5500a162",
    "document": "31b08d769243cab4",
    "max_new_tokens": "ef75e6eaf4bfaafc",
}

#: our subset name -> lm-eval's task file, for the answer limits
TASK_FILES = {
    "niah_single_1": "niah_single_1.yaml",
    "niah_single_2": "niah_single_2.yaml",
    "niah_single_3": "niah_single_3.yaml",
    "niah_multikey_1": "niah_multikey_1.yaml",
    "niah_multikey_2": "niah_multikey_2.yaml",
    "niah_multikey_3": "niah_multikey_3.yaml",
    "niah_multivalue": "niah_multivalue.yaml",
    "niah_multiquery": "niah_multiquery.yaml",
    "vt": "vt.yaml",
    "cwe": "cwe.yaml",
    "fwe": "fwe.yaml",
    "qa_1": "qa_squad.yaml",
    "qa_2": "qa_hotpot.yaml",
}

#: the same of each LongBench task's text and answer limit
LONGBENCH_HASHES: dict[str, str] = {
    "narrativeqa": "bf0889b3386c7e77",
    "qasper": "5562fe75d7834d98",
    "multifieldqa_en": "a9265f8825299b33",
    "multifieldqa_zh": "73f9ae28d0790eec",
    "hotpotqa": "d54f40f9a9684073",
    "2wikimqa": "d54f40f9a9684073",
    "musique": "d54f40f9a9684073",
    "dureader": "01391bafa8b524ac",
    "gov_report": "e68d252a01c30fe2",
    "qmsum": "d2a30ac588f901d1",
    "multi_news": "0e34904abd730396",
    "vcsum": "721a0ff407320710",
    "trec": "8514fc63035b18dd",
    "triviaqa": "59bb4ec8e4e4cef4",
    "samsum": "2b54e1f64b7157e8",
    "lsht": "c616d8cde632cf45",
    "passage_count": "b924bcd920b3a083",
    "passage_retrieval_en": "3a1280810a8b493c",
    "passage_retrieval_zh": "c76bb588df03a33e",
    "lcc": "eb2421bc05b7db00",
    "repobench-p": "f2acb3b2e7d50186",
}


class Templates(NamedTuple):
    """Prompt texts with NVIDIA's wording, their fields in braces.

    A prefix starts with the space that separates it from the question.
    """

    niah: str
    niah_prefix: str
    #: the same for several answers
    niah_prefix_many: str
    needle: str
    noise: str
    vt: str
    vt_prefix: str
    vt_first: str
    vt_next: str
    cwe: str
    cwe_prefix: str
    fwe: str
    fwe_prefix: str
    qa: str
    qa_prefix: str
    #: one document of qa under its number
    document: str
    #: answer limit of each subset in tokens
    max_new_tokens: dict[str, int]


class Task(NamedTuple):
    """What a LongBench task file of lm-eval says.

    text             the prompt, with the fields ``{{context}}`` and ``{{question}}``
    max_new_tokens   answer limit in tokens
    """

    text: str
    max_new_tokens: int


def installed_version() -> str:
    """lm-eval's version; :class:`BenchmarkError` if it is not installed."""
    try:
        return version("lm_eval")
    except PackageNotFoundError:
        raise _missing("ruler") from None


@cache
def longbench() -> dict[str, Task]:
    """LongBench's prompts and answer limits by task, as lm-eval has them; 0.1 s the first time.

    Raises :class:`BenchmarkError` if lm-eval is missing or its texts differ from the pinned version's.
    """
    raw = raw_longbench()
    changed = [name for name, known in LONGBENCH_HASHES.items() if known != _hash(raw[name])]
    if changed:
        raise BenchmarkError(
            f"lm-eval {installed_version()} differs from {PINNED} in LongBench prompts or answer limits: "
            f"{', '.join(changed)}; {REMEDY}"
        )
    return {name: Task(*found) for name, found in raw.items()}


def raw_longbench() -> dict[str, tuple[Any, Any]]:
    """Text and answer limit of each task; None for one that was not found."""
    files = {name: _task_file(f"{name}.yaml", "longbench") for name in LONGBENCH_HASHES}
    return {name: (task.get("doc_to_text"), _limit_of(task)) for name, task in files.items()}


@cache
def templates() -> Templates:
    """The prompt texts, in NVIDIA/RULER's wording. Takes about 0.1 s the first time.

    One text differs from NVIDIA's and is corrected: "assigned" is misspelt in vt's answer prefix. (lm-eval's other
    differences are in its generators, which are not used.)
    Raises :class:`BenchmarkError` if lm-eval is missing or its texts differ from the pinned version's.
    """
    raw = raw_constants()
    changed = sorted(name for name in HASHES.keys() | raw.keys() if HASHES.get(name) != _hash(raw.get(name)))
    if changed:
        raise BenchmarkError(
            f"lm-eval {installed_version()} differs from {PINNED} in RULER texts: {', '.join(changed)}; {REMEDY}"
        )
    return Templates(
        niah=raw["niah"],
        niah_prefix=" " + raw["niah_prefix"],
        niah_prefix_many=" " + raw["niah_prefix_many"],
        needle=raw["needle"],
        noise=raw["noise"],
        vt=raw["vt"],
        vt_prefix=raw["vt_prefix"].replace("assgined", "assigned"),
        vt_first=raw["vt_first"],
        vt_next=raw["vt_next"],
        cwe=raw["cwe"],
        cwe_prefix=raw["cwe_prefix"],
        fwe=raw["fwe"],
        fwe_prefix=raw["fwe_prefix"],
        qa=raw["qa"],
        qa_prefix=" " + raw["qa_prefix"],
        document=raw["document"],
        max_new_tokens=raw["max_new_tokens"],
    )


def raw_constants() -> dict[str, Any]:
    """The constants exactly as lm-eval has them; None for one that was not found."""
    niah, prepare = _Source("niah_utils.py"), _Source("prepare_niah.py")
    vt, cwe, fwe, qa = (_Source(f"{name}_utils.py") for name in ("vt", "cwe", "fwe", "qa"))
    vt_texts = (vt.constant("CONFIG") or {}).get("variable_tracking", {})
    cwe_texts, fwe_texts, qa_texts = (source.constant("CONFIG") or {} for source in (cwe, fwe, qa))
    return {
        "niah": niah.constant("TEMPLATE"),
        "niah_prefix": prepare.formatted("The special magic", " is"),
        "niah_prefix_many": prepare.formatted("The special magic", " are"),
        "needle": prepare.constant("NEEDLE"),
        "noise": prepare.constant("haystack"),
        "vt": vt_texts.get("template"),
        "vt_prefix": vt_texts.get("answer_prefix"),
        "vt_first": vt.formatted("VAR ", "{}"),
        "vt_next": vt.formatted("VAR ", " "),
        "cwe": cwe_texts.get("template"),
        "cwe_prefix": cwe_texts.get("answer_prefix"),
        "fwe": fwe_texts.get("template"),
        "fwe_prefix": fwe_texts.get("answer_prefix"),
        "qa": qa_texts.get("template"),
        "qa_prefix": qa_texts.get("answer_prefix"),
        "document": qa.constant("DOCUMENT_PROMPT"),
        "max_new_tokens": {name: _answer_limit(file) for name, file in TASK_FILES.items()},
    }


class _Source:
    """One source file of lm-eval's RULER, searched without running it."""

    def __init__(self, file: str) -> None:
        try:
            self._nodes = list(ast.walk(ast.parse(_folder().joinpath(file).read_text("utf-8"))))
        except (OSError, SyntaxError):
            self._nodes = []

    def constant(self, name: str) -> Any:
        """The first literal that is assigned to ``name``, at any depth."""
        for node in self._nodes:
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                try:
                    return ast.literal_eval(node.value)
                except ValueError:
                    continue
        return None

    def formatted(self, start: str, end: str) -> str | None:
        """The first f-string that starts and ends so, its fields as ``{}``."""
        for text in self._formatted():
            if text.startswith(start) and text.endswith(end):
                return text
        return None

    def _formatted(self) -> Iterator[str]:
        for node in self._nodes:
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


class _Loader(yaml.SafeLoader):
    """Reads lm-eval's task files; their ``!function`` tags are left out."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _answer_limit(file: str) -> int | None:
    """``max_gen_toks`` of a task file or of the file that it includes."""
    task = _task_file(file)
    limit = _limit_of(task)
    if limit is None and task.get("include"):
        return _answer_limit(task["include"])
    return limit


def _limit_of(task: dict[str, Any]) -> int | None:
    return (task.get("generation_kwargs") or {}).get("max_gen_toks")


def _task_file(file: str, benchmark: str = "ruler") -> dict[str, Any]:
    """A task file's content; empty if it cannot be read."""
    try:
        return yaml.load(_folder(benchmark).joinpath(file).read_text("utf-8"), _Loader) or {}
    except (OSError, yaml.YAMLError):
        return {}


@cache
def _folder(benchmark: str = "ruler") -> Path:
    spec = find_spec("lm_eval")  # of a top-level package: finds it without importing it
    if spec is None or not spec.submodule_search_locations:
        raise _missing(benchmark)
    return Path(spec.submodule_search_locations[0]) / "tasks" / benchmark


def _missing(benchmark: str) -> BenchmarkError:
    return BenchmarkError(f"{benchmark} takes its prompt texts from lm-eval, which is not installed; {REMEDY}")


def _hash(constant: Any) -> str:
    return hashlib.sha256(json.dumps(constant, sort_keys=True).encode()).hexdigest()[:16]
