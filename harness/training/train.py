"""Training of a KVzap surrogate: ``kvprune train-kvzap``.

KVzap, arXiv 2601.07891, section 4: one forward over a text and its repetition gives the targets, ln KVzip+ of every
pair of the text, and with them the hidden states that the surrogate is to predict them from. Everything is collected
once, streamed to disk or into running sums, and resumes where it stopped after a kill.
"""

from __future__ import annotations

from pathlib import Path

from harness.engine.adapter import describe, max_positions
from harness.errors import HarnessError
from harness.files import check_folder
from harness.models import loading
from harness.models.prompts import Prompts
from harness.training.collector import Collector
from harness.training.corpus import open_corpus
from harness.training.excerpts import Excerpts, Plan, Sizes, make_plan
from harness.training.feature_store import Store
from harness.training.fit import NUMBERS, evaluate, fit_linear, fit_mlp, moments_of, rounded
from harness.training.progress import Progress
from harness.training.report import announce, card, show
from methods.kvzap import files
from methods.kvzap.method import KVzap
from methods.kvzap.surrogate import Surrogate, needed_shape


def train(
    model: str,
    kind: str,
    out: Path,
    data: str,
    features: str = "hidden",
    documents: int | None = None,
    tokens_per_doc: int = 500,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    sizes: Sizes | None = None,
    progress: Progress | None = None,
) -> None:
    """Train a surrogate and write ``model.safetensors``, ``config.json`` and ``card.json`` into ``out``.

    kind             linear (ridge regression, no store of features) or mlp
    data             a folder of .jsonl files with a ``text`` on each line, or a data set of the hub
    features         what the surrogate reads, see :data:`methods.kvzap.targets.FEATURES`
    documents        at most this many, a balanced sample of the subsets; None: all
    tokens_per_doc   training tokens sampled from each document
    sizes            other lengths of text than the paper's

    A user's mistake is a :class:`HarnessError` or :class:`methods.base.MethodError` before the model loads.
    """
    sizes = sizes or Sizes(tokens_per_doc=tokens_per_doc)
    progress = progress or Progress()
    _check(model, kind, out, features, documents, sizes)
    loading.pick_dtype(dtype, loading.pick_device(device))
    corpus = open_corpus(data)
    tokenizer = loading.load_tokenizer(model)
    prompts = Prompts(tokenizer)
    excerpts = Excerpts(corpus, tokenizer, seed, sizes)
    plan = make_plan(excerpts, documents)
    _check_plan(plan, sizes)
    collector = Collector(loading.load_model(model, device, dtype), prompts, excerpts, features, progress)
    held_out = collector.held_out(plan.held_out)
    training = _training_store(collector, plan, kind)
    announce(collector, plan, held_out, training, progress)
    collector.fill(held_out, plan.held_out, whole=True)
    surrogate = rounded(_fit(collector, plan, training, kind))
    window = KVzap.protection.window
    figures = evaluate(surrogate, held_out, plan.held_out, window, progress)
    show(figures, window, progress)
    files.save(surrogate, card(surrogate, collector, plan, figures, window, training is not None), out, NUMBERS[kind])
    progress.say(f"Written to {out}")


def _check(model: str, kind: str, out: Path, features: str, documents: int | None, sizes: Sizes) -> None:
    if documents is not None and documents < 1:
        raise HarnessError(f"--documents must be 1 or more, got {documents}")
    if sizes.tokens_per_doc < 1:
        raise HarnessError(f"--tokens-per-doc must be 1 or more, got {sizes.tokens_per_doc}")
    if out.exists() and not out.is_dir():
        raise HarnessError(f"--out {out} is a file; give a folder")
    check_folder(out)
    config = loading.config_of(model)
    needed_shape(describe(config, model), kind, features)
    positions, longest = max_positions(config), 2 * sizes.window[1]
    if positions <= longest:
        raise HarnessError(
            f"model {model!r} has {positions} positions; training needs more than {longest}, "
            f"for texts of up to {sizes.window[1]} tokens and their repetition"
        )


def _check_plan(plan: Plan, sizes: Sizes) -> None:
    if not plan.train or not plan.held_out:
        raise HarnessError(
            f"the training text has {len(plan.held_out)} documents to hold out (the first {sizes.held_out} of each "
            f"subset) and {len(plan.train)} more to train on; both need at least one. {plan.short} were skipped "
            f"because they have fewer than {sizes.window[0]} tokens: give longer texts, or more of them"
        )


def _training_store(collector: Collector, plan: Plan, kind: str) -> Store | None:
    """The store of an MLP's training rows; a linear surrogate makes none, but reads one that is complete."""
    store = collector.training(plan.train)
    return store if kind == "mlp" or store.done == len(plan.train) else None


def _fit(collector: Collector, plan: Plan, store: Store | None, kind: str) -> Surrogate:
    shape = needed_shape(collector.lm.info, kind, collector.features)
    progress, features = collector.progress, collector.features
    if store is not None:
        collector.fill(store, plan.train, whole=False)
    if kind == "mlp":
        assert store is not None
        device = str(collector.lm.device)
        return fit_mlp(store, shape, features, collector.excerpts.seed, device, progress)
    moments = collector.moments(plan.train) if store is None else moments_of(store, progress)
    return fit_linear(moments, shape, features, progress)
