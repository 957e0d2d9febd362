"""What the measuring commands write with ``--json``, field by field."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from harness.results.schema import Group

#: a figure per pair of methods, and per layer and head of it; None where there is none
Square = list[list[float | None]]
ByHead = list[list[list[list[float | None]]]]


class Timed(BaseModel):
    """What was timed, and on what."""

    kind: Literal["sweep", "samples"]
    model: str
    labels: list[str]
    dtype: str
    hardware: str
    versions: dict[str, str]


class SweepRow(BaseModel):
    """Seconds of all variants from one prefill (shared) and one at a time (single)."""

    length: int
    question_tokens: int
    new_tokens: int
    variants: int
    shared_seconds: float
    single_seconds: float
    ratio: float
    same_tokens: int
    repeat: int


class SweepFigures(Timed):
    rows: list[SweepRow]


class SamplesFigures(Timed):
    """Seconds per sample; scores and predictions per sample and variant; ``rows`` are the samples themselves."""

    benchmark: str
    length: int
    seconds: list[float]
    scores: list[list[float]]
    predictions: list[list[str]]
    rows: list[Any]


class AgreementFigures(BaseModel):
    """Means over the contexts: rank correlations, and of what one method keeps the share that another keeps too."""

    kind: Literal["agreement"] = "agreement"
    model: str
    benchmark: str
    length: list[int | None]
    contexts: int
    removed: float
    methods: list[str]
    repeat: str
    rank: Square
    share: Square
    rank_by_head: ByHead
    share_by_head: ByHead
    skipped: dict[str, str]
    failed: dict[str, str]
    dtype: str
    seed: int
    data_hash: str
    versions: dict[str, str]


class SubsetScore(BaseModel):
    score: float
    n: int


class PredictionScores(BaseModel):
    """Mean scores of another program's predictions on 0-100: per subset, per group of subsets, over all subsets."""

    benchmark: str
    predictions: str
    subsets: dict[str, SubsetScore]
    groups: dict[str, Group]
    score: float
    n_subsets: int
    of_subsets: int
