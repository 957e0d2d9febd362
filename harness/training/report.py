"""What a training prints before it starts and when it is done, and the card it writes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from rich.table import Table

from harness.evaluation import provenance
from harness.training.collector import Collector
from harness.training.excerpts import Plan
from harness.training.feature_store import Store
from harness.training.fit import Figures
from harness.training.progress import Progress
from methods.kvzap import mlp, moments
from methods.kvzap.calibration import LONGER, Calibrated
from methods.kvzap.surrogate import Surrogate


def announce(collector: Collector, plan: Plan, held_out: Store, training: Store | None, progress: Progress) -> None:
    """State what will be collected, and how much room it takes, before the first forward."""
    say = progress.say
    say(
        f"Training text: {len(plan.train)} documents to train on, {len(plan.held_out)} held out, from "
        f"{len(collector.excerpts.corpus.subsets)} subsets; {plan.short} skipped with fewer than "
        f"{collector.excerpts.sizes.window[0]} tokens."
    )
    for name, store in (("Held-out", held_out), ("Training", training)):
        if store is not None:
            whole = store.shape.size(store.ends[-1])
            say(
                f"{name} features and targets: {whole / 1e6:,.0f} MB in {store.folder}, "
                f"{store.missing_bytes() / 1e6:,.0f} MB of which are still to be collected."
            )
    if training is None:
        shape = held_out.shape
        size = shape.layers * shape.features * (shape.features + shape.heads) * 8
        say(f"Training features are not stored; their products take {size / 1e6:,.0f} MB of memory.")


def card(
    surrogate: Surrogate, collector: Collector, plan: Plan, figures: Figures, window: int, stored: bool
) -> dict[str, Any]:
    """Everything that the weights depend on, and what they achieve on held-out text."""
    sizes, lm = collector.excerpts.sizes, collector.lm
    settings = {
        "linear": {"alpha": moments.ALPHA},
        "mlp": {
            "learning_rate": mlp.LEARNING_RATE,
            "weight_decay": mlp.WEIGHT_DECAY,
            "epochs": mlp.EPOCHS,
            "batch": mlp.BATCH,
            "gradient_norm": mlp.CLIP,
            "validation": mlp.VALIDATION,
        },
    }
    return {
        "model": lm.name,
        "kind": surrogate.kind,
        "features": surrogate.features,
        "r2": round(float(figures.r2.mean()), 4),
        "r2_by_layer": [round(float(layer.mean()), 4) for layer in figures.r2],
        "thresholds": {f"{found.share:g}": round(found.tau, 4) for found in figures.calibrated},
        "thresholds_measured": {f"{found.share:g}": round(found.measured, 4) for found in figures.calibrated},
        "thresholds_note": " ".join(_notes(figures.calibrated, window)),
        "window": window,
        "data_hash": collector.excerpts.corpus.digest,
        "subsets": len(collector.excerpts.corpus.subsets),
        "documents": len(plan.train),
        "tokens": sum(document.rows for document in plan.train),
        "tokens_per_doc": sizes.tokens_per_doc,
        "document_tokens": list(sizes.window),
        "held_out_documents": len(plan.held_out),
        "held_out_tokens": sum(document.tokens for document in plan.held_out),
        "short_documents": plan.short,
        "seed": collector.excerpts.seed,
        "dtype": str(lm.dtype).removeprefix("torch."),
        "feature_store": "float16" if stored else "none",
        "settings": settings[surrogate.kind],
        "versions": {**provenance.versions(), **{name: version(name) for name in ("scikit-learn", "skorch")}},
    }


def _notes(calibrated: list[Calibrated], window: int) -> list[str]:
    return [
        f"{found.share:g} is unreachable on held-out contexts of this length, of which the window of {window} stays: "
        f"its threshold is the one that removes {found.share:g} of {LONGER:,} tokens, if scores are spread there as "
        "they are here."
        for found in calibrated
        if not found.reached
    ]


def show(figures: Figures, window: int, progress: Progress) -> None:
    """Print R2, for each layer and overall, and the thresholds."""
    layers = Table("layer", "R2", "worst head", "best head", title="Squared correlation on held-out text")
    for number, heads in enumerate(figures.r2):
        layers.add_row(str(number), *(f"{float(value):.3f}" for value in (heads.mean(), heads.min(), heads.max())))
    progress.console.print(layers)
    table = Table("removed", "threshold", "measured", title="Thresholds on held-out text")
    for found in figures.calibrated:
        table.add_row(f"{found.share:g}", f"{found.tau:.3f}", f"{found.measured:.3f}" + ("" if found.reached else " *"))
    progress.console.print(table)
    for note in _notes(figures.calibrated, window):
        progress.say(f"* {note}")
    progress.say(f"Mean R2: {float(figures.r2.mean()):.4f}")
