"""What a benchmark gives the harness: samples to run, a way to score the answers, and the metrics that it reports.

No model and no torch here.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class BenchmarkError(ValueError):
    """A user's mistake about a benchmark: names the value given, the values allowed, and what to do next."""

    #: printed without a traceback (:func:`harness.errors.is_users_mistake`)
    users_mistake = True


class Text(NamedTuple):
    """The model's tokenizer as a benchmark may use it: ``encode(text) -> ids`` without special tokens, its inverse,
    and a hash that identifies it in cache keys."""

    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    fingerprint: str


@dataclass(frozen=True)
class Sample:
    """One question on one context. Samples with the same ``context_id`` have the same context and share a prefill.

    context         what is cached and pruned
    question        what is asked of the pruned cache
    answer_prefix   forced start of the answer (already in the assistant's turn)
    max_new_tokens  answer limit
    stop            strings that end an answer and are cut off from it
    references      right answers
    length          the requested length in tokens; None if the benchmark has none
    sampling        temperature, top_p and top_k of sampled answers; None = greedy
    rollouts        answers per variant; more than one only with sampling
    chat_template   whether the prompt is put in the model's chat template
    cut_from        character offset in the context at which a document starts that runs to the context's end; if the
                    prompt is too long for the model, the document's middle is left out. None: nothing is cut
    target          the given answer of a benchmark whose ``teacher_forced`` is "text"; read up to ``max_new_tokens``
    """

    sample_id: str
    context_id: str
    context: str
    question: str
    answer_prefix: str
    max_new_tokens: int
    references: tuple[str, ...]
    subset: str
    length: int | None = None
    stop: tuple[str, ...] = ()
    all_classes: tuple[str, ...] = ()
    chat_template: bool = True
    sampling: dict[str, float] | None = None
    rollouts: int = 1
    target: str | None = None
    cut_from: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain dict that :meth:`from_json` turns back into an equal sample."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Sample:
        names = ("references", "stop", "all_classes")
        lists: dict[str, Any] = {name: tuple(row[name]) for name in names if name in row}
        return cls(**{**row, **lists})


@dataclass(frozen=True)
class Score:
    """The score of one answer, 0 to 100, and further figures by name. Those that the benchmark declares in
    :attr:`Benchmark.metrics` appear in tables and on the leaderboard; the others are only recorded."""

    score: float
    metrics: dict[str, float] = field(default_factory=dict)


#: formats of a metric: digits after the point, as a number, a percentage or in scientific notation
_FORMAT = re.compile(r"\.[0-9][f%e]")


@dataclass(frozen=True)
class Metric:
    """A figure that a benchmark reports beside its score, declared so that tables, CSV files and the leaderboard can
    show it without knowing the benchmark.

    name              its key in :attr:`Score.metrics`
    title             the heading of its column
    format            format specification of a value: ``.1f``, ``.0%``, ``.2e``
    description       the title of its axis: what it is, with its unit; the title if empty
    higher_is_better  False for distances and errors
    log_scale         whether its axis is logarithmic, for figures that span decades
    """

    name: str
    title: str
    format: str = ".1f"
    description: str = ""
    higher_is_better: bool = True
    log_scale: bool = False

    def __post_init__(self) -> None:
        if not self.name or not self.title:
            raise BenchmarkError(f"the metric {self.name or self.title!r} needs a name and a title")
        if not _FORMAT.fullmatch(self.format):
            raise BenchmarkError(
                f"the metric {self.name} has the format {self.format!r}; use a specification such as .1f, .0% or .2e"
            )


@dataclass(frozen=True)
class Request:
    """What the user requested of a benchmark.

    lengths   context lengths in tokens; empty = the benchmark's default
    subsets   names; empty = all that can be run
    optional  those of them that are left out where their data are missing, since a name for several requested them
    limit     samples per subset and length; None = the benchmark's own number
    data      local file or folder given with ``--data``; None = generated or downloaded
    seed      the run's seed

    Raises :class:`BenchmarkError` on a limit below 1, and on a path that the system cannot even look at.
    """

    lengths: tuple[int, ...] = ()
    subsets: tuple[str, ...] = ()
    limit: int | None = None
    data: Path | None = None
    seed: int = 0
    optional: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise BenchmarkError(f"--limit must be 1 or more, got {self.limit}")
        check_reachable(self.data)


def check_reachable(data: Path | None) -> None:
    """:class:`BenchmarkError` on a path that the system cannot even look at: too long, or in a folder that this user
    may not open. Each benchmark reports a missing path itself, along with what it takes."""
    try:
        if data is not None:
            data.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BenchmarkError(f"--data {data} cannot be read: {reason}; give a path that this user can open") from error


class Benchmark:
    """A benchmark: facts as class variables, :meth:`samples` and :meth:`score` as code."""

    name: str = ""
    summary: str = ""
    paper: str = ""
    licence: str = ""
    #: changes whenever the same request would give other samples
    version: str = "1"
    #: every subset of the published benchmark, in its order
    subsets: tuple[str, ...] = ()
    #: subsets that need ``--data`` or the hub
    needs_data: tuple[str, ...] = ()
    #: named sets of subsets, whose means are shown too; ``--subset`` takes these names as well
    groups: Mapping[str, tuple[str, ...]] = {}
    default_lengths: tuple[int, ...] = ()
    #: the smallest ``--length`` that it takes
    shortest: int = 1
    #: samples per subset and length
    default_limit: int = 100
    #: the metrics that tables show beside the score, in their order
    metrics: tuple[Metric, ...] = ()
    #: the score of random answers, 0-100
    chance: float = 0.0
    #: phase of a run of this benchmark alone if ``--phase`` is not given
    default_phase: str = "prefill"
    #: query modes that a run compares by default, for benchmarks with several questions on a context; empty: no modes
    #: to compare (:mod:`harness.config.query_modes`)
    query_modes: tuple[str, ...] = ()
    #: models that can think do so here by default
    thinks: bool = False
    #: answer limit of all samples; a smaller one is reported beside the results. None where subsets have their own
    answer_limit: int | None = None
    #: the k of each pass@k that is reported, for scores that are 0 or 100
    pass_at: tuple[int, ...] = ()
    #: the metric that is 0 where a second scorer disagrees; such lines are listed
    cross_check: str | None = None
    #: "": each variant writes its answer. Else all variants read the same one (teacher forcing): "answer", the full
    #: cache's own; "text", the sample's ``target``; "repeat", the context once more
    teacher_forced: str = ""
    #: references and contexts may be committed with a run
    shareable: bool = False

    def with_suffix(self, suffix: str) -> Benchmark:
        """The benchmark that ``NAME:suffix`` names. Raises :class:`BenchmarkError` if nothing may follow the
        name."""
        raise BenchmarkError(f"{self.name}:{suffix} is not a benchmark; {self.name} takes nothing after its name")

    def subsets_named(self, name: str) -> tuple[str, ...]:
        """What ``--subset NAME`` means: a subset, the members of a group, or all subsets that begin with the name, if
        they are several; else nothing."""
        if name in self.subsets:
            return (name,)
        begin = tuple(subset for subset in self.subsets if subset.startswith(name))
        return self.groups.get(name, begin if len(begin) > 1 else ())

    def check(self, request: Request) -> None:
        """Raise :class:`BenchmarkError` on a request that cannot be run. Called before the model loads."""
        self.check_subsets(request)
        self.check_lengths(request)

    def check_subsets(self, request: Request) -> None:
        """Raise :class:`BenchmarkError` on a subset that the benchmark does not have."""
        for subset in request.subsets:
            if subset not in self.subsets:
                known = ", ".join(nearest_first(subset, self.subsets))
                raise BenchmarkError(f"{self.name} has no subset {subset!r}; its subsets, nearest first: {known}")

    def check_lengths(self, request: Request) -> None:
        """Raise :class:`BenchmarkError` on a length that is too short."""
        for length in request.lengths:
            if length < self.shortest:
                raise BenchmarkError(f"{self.name} needs --length {self.shortest} or more, got {length}")

    def notes(self, request: Request) -> tuple[str, ...]:
        """What a reader of the results must know of this request, such as subsets that are missing from a mean."""
        return ()

    def samples(self, request: Request, text: Text) -> list[Sample]:
        """The samples, the same for the same request and tokenizer. Samples of one context are neighbours."""
        raise NotImplementedError

    def check_samples(self, request: Request, samples: Sequence[Sample], text: Text) -> None:
        """Raise :class:`BenchmarkError` on samples from ``--data`` that are not what the benchmark's name or
        ``--length`` says. Apart from :meth:`samples`, since scoring makes those again without a tokenizer."""

    def score(self, sample: Sample, prediction: str) -> Score:
        """Score one answer, without its answer prefix; of a model that thinks, what follows the reasoning
        (:func:`benchmarks.thinking_tags.after_thought`). Needs no model and can be repeated."""
        raise NotImplementedError

    def read_predictions(self, folder: Path) -> Iterator[tuple[Sample, str]]:
        """Samples, without their prompts, and predictions from a folder of another program's outputs, to be scored.
        Raises :class:`BenchmarkError` if the benchmark has no such format, or a file is broken."""
        raise BenchmarkError(f"{self.name} has no format for prediction files")


def left_out(request: Request, lacking: Sequence[str], place: str) -> tuple[str, ...]:
    """The note about optional subsets of a request that ``place`` has no rows of, if there are any."""
    if not lacking:
        return ()
    several = f"{len(lacking)} of {len(request.subsets)} requested subsets"
    return (f"{place} has no rows of {several}, which were not run: {', '.join(lacking)}.",)


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """``known``, the most similar to ``name`` first."""

    def distance(candidate: str) -> tuple[float, str]:
        return -difflib.SequenceMatcher(None, name.lower(), candidate.lower()).ratio(), candidate

    return sorted(known, key=distance)


def content_hash(*parts: Any) -> str:
    """First 16 hex digits of the SHA-256 of the parts as JSON; used for ids and cache keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
