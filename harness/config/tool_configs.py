"""The flags of the commands around a run: lm-eval, agreement, timing, training."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from harness.config.flags import (
    Device,
    Dtype,
    FilePath,
    Flags,
    Fraction,
    Lengths,
    Methods,
    Model,
    Names,
    NotNegative,
    Options,
    Plugins,
    Positive,
    Positives,
    Seed,
    Subsets,
    Switch,
    Text,
    help_text,
)
from harness.models.known_models import DEFAULT_MODEL


class LmEvalConfig(Flags):
    """What lm-eval is to run; the variants are a :class:`~harness.config.run_config.RunConfig`'s."""

    tasks: Annotated[Names, help_text("tasks of lm-eval, or of --include-path")]
    include_path: Annotated[FilePath | None, help_text("folder with task files of your own")] = None
    num_fewshot: Annotated[NotNegative | None, help_text("examples in each prompt (default: the task's)")] = None
    apply_chat_template: Annotated[Switch, help_text("put prompts in the chat template")] = False


class AgreementConfig(Flags):
    """What :mod:`harness.measure.agreement` compares on what; ``removed`` sets the kept sets."""

    method: Annotated[Methods, help_text("methods, or all; kvzip, the repeat pass, always takes part")] = ("all",)
    benchmark: Annotated[Text | None, help_text("where contexts and questions come from (default: needles)")] = None
    length: Lengths = ()
    subset: Subsets = ()
    limit: Annotated[Positive, help_text("samples per subset")] = 2
    data: Annotated[FilePath | None, help_text("any text in place of a benchmark, or the benchmark's local rows")] = (
        None
    )
    removed: Annotated[Fraction, help_text("fraction that the kept sets lack, in each head")] = Decimal("0.5")
    option: Options = ()
    model: Model = DEFAULT_MODEL
    device: Device = "auto"
    dtype: Dtype = "auto"
    seed: Seed = 0
    plugin: Plugins = ()


class SweepConfig(Flags):
    """What ``profile sweep`` times, on random tokens."""

    method: Methods = ("all",)
    length: Annotated[Positives, help_text("cached tokens")] = (1024, 4096)
    question_tokens: Annotated[Positive, help_text("tokens of the question")] = 32
    new_tokens: Annotated[Positives, help_text("answer tokens, no early stop")] = (24, 128)
    repeat: Annotated[Positive, help_text("runs of which the median is taken")] = 1
    model: Model = DEFAULT_MODEL
    device: Device = "auto"
    dtype: Dtype = "auto"


class SamplesConfig(Flags):
    """What ``profile samples`` times, on a benchmark's samples."""

    #: the methods that scripts/kvpress_sweep.py knows too
    method: Methods = ("random", "knorm", "streaming_llm", "kvzip", "kvzip_plus")
    benchmark: Annotated[Text, help_text("where the samples come from")] = "needles"
    length: Annotated[Positive, help_text("context length in tokens")] = 1024
    subset: Subsets = ()
    limit: Annotated[Positive, help_text("samples per subset")] = 1
    model: Model = DEFAULT_MODEL
    device: Device = "auto"
    dtype: Dtype = "auto"


class TrainConfig(Flags):
    """What ``train-kvzap`` trains, and on what."""

    kind: Annotated[Text, help_text("linear or mlp")]
    out: Annotated[FilePath, help_text("folder for the weights and their card")]
    data: Annotated[Text, help_text("folder of .jsonl files with a text column, or a hub data set")]
    model: Model = DEFAULT_MODEL
    features: Annotated[Text, help_text("hidden or keys-values")] = "hidden"
    documents: Annotated[Positive | None, help_text("most training documents (default: all)")] = None
    tokens_per_doc: Annotated[Positive, help_text("random tokens taken per document")] = 500
    seed: Annotated[NotNegative, help_text("seed of the choice of tokens and of the fit")] = 0
    device: Device = "auto"
    dtype: Dtype = "auto"
