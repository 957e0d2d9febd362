"""The published texts that seven of RULER's subsets are made from (essays, SQuAD, HotpotQA), local or from the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError, content_hash
from benchmarks.data_files import PACKED, DataPath, without_copies


class Question(NamedTuple):
    """A question and, as indices into :attr:`Corpus.documents`, the documents that it is about.

    own    documents with the answer
    near   documents that are added first: the rest of the article, or the question's own distractors
    """

    query: str
    answers: tuple[str, ...]
    own: tuple[int, ...]
    near: tuple[int, ...]


class Corpus(NamedTuple):
    """Distinct documents, sorted, and the questions in the order of their source."""

    documents: tuple[str, ...]
    questions: tuple[Question, ...]


class Loaded(NamedTuple):
    """A source's content (a text or a :class:`Corpus`) and a hash of it."""

    content: Any
    fingerprint: str


@dataclass(frozen=True)
class Source:
    """One body of texts.

    files   patterns in a ``--data`` folder; all files of the first pattern that matches any are taken
    form    what such a file contains, for errors
    hub     name, configuration and split of its data set
    parse   contents of all files, or the rows of the data set, to a text or corpus
    """

    name: str
    files: tuple[str, ...]
    form: str
    hub: tuple[str, str | None, str]
    parse: Callable[[list[Any]], Any]

    def found(self, folder: Path) -> list[Path]:
        """Its files in a folder, sorted; :class:`BenchmarkError` if the folder cannot be listed."""
        # glob silently skips a folder that cannot be listed
        DataPath(folder, f"a folder with {self.files[0]} ({self.form})").files()
        for pattern in self.files:
            found = (path for name in (pattern, pattern + PACKED) for path in folder.glob(name))
            files = without_copies(path for path in found if path.is_file())
            if files:
                return files
        return []

    def lacking(self, folder: Path | None) -> bool:
        """Whether it cannot be had: not in the folder, or without one not from the hub."""
        if folder is not None:
            return not self.found(folder)
        return _not_on_hub(self)

    def load(self, folder: Path | None) -> Loaded:
        """From a folder, or from the hub if there is none. Raises :class:`BenchmarkError` if it is missing or in no
        known layout."""
        if folder is None:
            return _from_hub(self)
        files = self.found(folder)
        if not files:
            raise BenchmarkError(f"--data {folder} has no {self.files[0]} ({self.form}); put it there")
        try:
            stamps = tuple((path, path.stat().st_mtime_ns) for path in files)
        except OSError as error:
            raise BenchmarkError(f"--data {folder} cannot be read: {error}") from error
        return _from_files(self, folder, stamps)


@lru_cache(maxsize=8)
def _from_hub(source: Source) -> Loaded:
    name, config, split = source.hub
    rows = hub.rows(name, config, split, f"give a folder with {source.files[0]} ({source.form}) as --data FOLDER")
    return _parsed(source, [rows], f"the data set {name}")


@lru_cache(maxsize=8)
def _not_on_hub(source: Source) -> bool:
    try:
        _from_hub(source)
    except BenchmarkError:
        return True
    return False


@lru_cache(maxsize=8)
def _from_files(source: Source, folder: Path, stamps: tuple[tuple[Path, int], ...]) -> Loaded:
    contents = [DataPath(path, f"a folder whose {path.name} holds {source.form}").json() for path, _ in stamps]
    return _parsed(source, contents, ", ".join(str(path) for path, _ in stamps))


def _parsed(source: Source, contents: list[Any], place: str) -> Loaded:
    try:
        content = source.parse(contents)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        detail = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BenchmarkError(
            f"{place}: not in the layout of {source.name} ({detail}); expected {source.form}"
        ) from error
    if not (content.questions if isinstance(content, Corpus) else content):
        raise BenchmarkError(f"{place} has no {source.name}; expected {source.form}")
    return Loaded(content, content_hash(content))


def _essays(contents: list[Any]) -> str:
    texts = [row["text"] for content in contents for row in (content if isinstance(content, list) else [content])]
    return " ".join(text.strip() for text in texts)


def _squad(contents: list[Any]) -> Corpus:
    """SQuAD's JSON, or its rows on the hub. Questions without an answer are left out, their paragraphs are not."""
    paragraphs = [paragraph for content in contents for paragraph in _paragraphs(content)]
    documents, places = _numbered(context for _, context, _ in paragraphs)
    articles: dict[str, dict[int, None]] = {}
    for title, context, _ in paragraphs:
        articles.setdefault(title, {})[places[context]] = None
    questions = []
    for title, context, asked in paragraphs:
        own = places[context]
        near = tuple(place for place in articles[title] if place != own)
        questions += [Question(query, answers, (own,), near) for query, answers in asked if answers]
    return Corpus(documents, tuple(questions))


def _paragraphs(content: Any) -> Iterator[tuple[str, str, list[tuple[str, tuple[str, ...]]]]]:
    """Title of the article, text, and questions with their answers."""
    if isinstance(content, list):
        for row in content:
            yield row["title"], row["context"], [(row["question"], tuple(row["answers"]["text"]))]
        return
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            asked = [(qa["question"], tuple(answer["text"] for answer in qa["answers"])) for qa in paragraph["qas"]]
            yield article["title"], paragraph["context"], asked


def _hotpotqa(contents: list[Any]) -> Corpus:
    """HotpotQA's official JSON, or its rows on the hub, with ten documents per question; repeats are dropped."""
    rows = [(row, _titled(row["context"], "sentences")) for content in contents for row in content]
    documents, places = _numbered(text for _, texts in rows for _, text in texts)
    questions = []
    for row, texts in rows:
        named = {title for title, _ in _titled(row["supporting_facts"], "sent_id")} if "supporting_facts" in row else {}
        own = dict.fromkeys(places[text] for title, text in texts if title in named or not named)
        near = dict.fromkeys(places[text] for _, text in texts if places[text] not in own)
        questions.append(Question(row["question"], (row["answer"],), tuple(own), tuple(near)))
    return Corpus(documents, tuple(dict.fromkeys(questions)))


def _titled(pairs: Any, second: str) -> list[tuple[str, str]]:
    """(title, title and text) of documents in either layout: a list of pairs, or a dict of two lists."""
    found = zip(pairs["title"], pairs[second], strict=True) if isinstance(pairs, dict) else pairs
    return [(title, f"{title}\n{''.join(text)}" if isinstance(text, list) else title) for title, text in found]


def _numbered(texts: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    documents = tuple(sorted(set(texts)))
    for text in documents[:1] + documents[-1:]:  # sorted, so all are strings if one is
        if not isinstance(text, str):
            raise TypeError(f"a document is {type(text).__name__}, not text")
    return documents, {text: place for place, text in enumerate(documents)}


ESSAYS = Source(
    "essays",
    ("paul_graham/*.json", "PaulGrahamEssays.json"),
    "RULER's PaulGrahamEssays.json, an object with one `text`",
    ("baber/paul_graham_essays", None, "train"),
    _essays,
)
SQUAD = Source(
    "SQuAD",
    ("squad/*.json", "squad.json"),
    "SQuAD 2.0's dev-v2.0.json",
    ("rajpurkar/squad_v2", None, "validation"),
    _squad,
)
HOTPOTQA = Source(
    "HotpotQA",
    ("hotpotqa/*.json", "hotpotqa.json"),
    "HotpotQA's hotpot_dev_distractor_v1.json",
    ("hotpotqa/hotpot_qa", "distractor", "validation"),
    _hotpotqa,
)

#: subset -> what it is made from
SOURCES: dict[str, Source] = {
    "niah_single_2": ESSAYS,
    "niah_single_3": ESSAYS,
    "niah_multikey_1": ESSAYS,
    "niah_multivalue": ESSAYS,
    "niah_multiquery": ESSAYS,
    "qa_1": SQUAD,
    "qa_2": HOTPOTQA,
}
