"""What a benchmark gives the harness: samples to run and a way to score the answers. No model, no torch here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class BenchmarkError(ValueError):
    """A user's mistake about a benchmark: says the value given, the values allowed, and what to do next."""

    #: printed without a traceback (:func:`harness.errors.is_users_mistake`)
    users_mistake = True


class Text(NamedTuple):
    """The model's tokeniser as a benchmark may use it: ``encode(text) -> ids`` without special tokens, its inverse,
    and a hash that names it in cache keys."""

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
    stop            strings that end an answer, cut off from it
    references      right answers
    length          the requested length in tokens; None where the benchmark has none
    sampling        temperature, top_p and top_k of drawn answers; None = greedy
    rollouts        answers of each variant; more than one only with sampling
    chat_template   whether the prompt is put in the model's chat template
    cut_from        place in the context, in characters, where a document starts that runs to the context's end; where
                    the prompt is too long for the model, the document's middle is left out. None: nothing is cut
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
    """A score on 0-100 and any further figures of one answer."""

    score: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What the user asked of a benchmark.

    lengths   context lengths in tokens; empty = the benchmark's default
    subsets   names; empty = all that can be run
    limit     samples of each subset and length; None = the benchmark's own number
    data      local file or folder given with ``--data``; None = generated or downloaded
    seed      the run's seed
    """

    lengths: tuple[int, ...] = ()
    subsets: tuple[str, ...] = ()
    limit: int | None = None
    data: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_reachable(self.data)


def check_reachable(data: Path | None) -> None:
    """:class:`BenchmarkError` on a path that the system cannot even look at: too long, or behind a folder that is
    closed to this user. That there is nothing at a path is for each benchmark to say, with what it takes."""
    try:
        if data is not None:
            data.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BenchmarkError(f"--data {data} cannot be read: {reason}; give a path that this user can open") from error


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: facts as class variables, :meth:`samples` and :meth:`score` as code."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    licence: ClassVar[str] = ""
    #: changes whenever the same request would give other samples
    version: ClassVar[str] = "1"
    #: every subset of the published benchmark, in its order
    subsets: ClassVar[tuple[str, ...]] = ()
    #: subsets that need ``--data`` or the hub
    needs_data: ClassVar[tuple[str, ...]] = ()
    #: named sets of subsets, whose means are shown too; ``--subset`` takes these names as well
    groups: ClassVar[dict[str, tuple[str, ...]]] = {}
    default_lengths: ClassVar[tuple[int, ...]] = ()
    default_limit: ClassVar[int] = 100
    #: the score that answering at random gets, 0-100
    chance: ClassVar[float] = 0.0
    #: phase of a run of this benchmark alone where ``--phase`` is not given
    default_phase: ClassVar[str] = "prefill"
    #: query modes that a run compares unless told otherwise, for benchmarks with several questions on a context; empty:
    #: no modes to compare (:mod:`harness.config.query_modes`)
    query_modes: ClassVar[tuple[str, ...]] = ()
    #: models that can think do so here unless told otherwise
    thinks: ClassVar[bool] = False
    #: answer limit of all samples; a smaller one is said beside the results. None where subsets have their own
    answer_limit: ClassVar[int | None] = None
    #: the k of each pass@k that is reported, for scores that are 0 or 100
    pass_at: ClassVar[tuple[int, ...]] = ()
    #: the metric that is 0 where a second scorer disagrees; such lines are listed
    cross_check: ClassVar[str | None] = None
    #: "": each variant writes its answer. Else all variants read the same one (teacher forcing): "answer", the full
    #: cache's own; "text", the sample's ``target``; "repeat", the context once more
    teacher_forced: ClassVar[str] = ""
    #: references and contexts may be committed with a run
    shareable: ClassVar[bool] = False

    def of(self, what: str) -> Benchmark:
        """The benchmark that ``NAME:what`` names. Raises :class:`BenchmarkError` where nothing may follow the name."""
        raise BenchmarkError(f"{self.name}:{what} is no benchmark; nothing follows the name of {self.name}")

    def check(self, request: Request) -> None:
        """Raise :class:`BenchmarkError` on a request that cannot be run. Called before the model loads."""

    def notes(self, request: Request) -> tuple[str, ...]:
        """What a reader of the results must know of this request, such as subsets that are missing from a mean."""
        return ()

    def samples(self, request: Request, text: Text) -> list[Sample]:
        """The samples, the same for the same request and tokenizer. Samples of one context are neighbours."""
        raise NotImplementedError

    def score(self, sample: Sample, prediction: str) -> Score:
        """Score one answer, without its answer prefix; of a model that thinks, what follows the thought
        (:func:`benchmarks.thinking_tags.after_thought`). Needs no model and can be repeated."""
        raise NotImplementedError

    def answered(self, folder: Path) -> Iterator[tuple[Sample, str]]:
        """Samples, without their prompts, and predictions from a folder of another program's outputs, to be scored.
        Raises :class:`BenchmarkError` where the benchmark has no such form, or a file is broken."""
        raise BenchmarkError(f"{self.name} has no form of prediction files")


def content_hash(*parts: Any) -> str:
    """First 16 hex digits of the SHA-256 of the parts as JSON; used for ids and cache keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
