"""Collection: one forward per document, into a store of rows or into running moments; both can be resumed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.errors import HarnessError
from harness.files import cache_folder
from harness.models.prompts import Prompts
from harness.training.excerpts import Document, Excerpts
from harness.training.feature_store import Shape, Store
from harness.training.progress import Progress
from harness.training.repeat_forward import collect, fingerprint, repetition
from methods.kvzap.moments import Moments
from methods.kvzap.targets import feature_size
from methods.kvzip import REPEAT_ALL

#: changes whenever what is collected from the same text and model does
VERSION = 1
#: documents between two saves of running moments
SAVE_EVERY = 20


@dataclass
class Collector:
    """What every collection of a training shares."""

    lm: LanguageModel
    prompts: Prompts
    excerpts: Excerpts
    features: str
    progress: Progress

    @property
    def shape(self) -> Shape:
        info = self.lm.info
        size = feature_size(self.features, info.hidden_size, info.kv_heads, info.head_size)
        return Shape(info.layers, size, info.kv_heads)

    def folder(self, *settings: object) -> Path:
        """Where the collection of this model, text, seed and ``settings`` is kept, outside any repository."""
        frame = self.prompts.frame
        parts = (
            VERSION,
            fingerprint(self.lm),
            self.excerpts.corpus.digest,
            self.prompts.text.fingerprint,
            frame,
            REPEAT_ALL,
        )
        sizes = self.excerpts.sizes
        key = (*parts, self.excerpts.seed, self.features, sizes.window, sizes.held_out, *settings)
        return cache_folder() / "training" / hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    def held_out(self, documents: Sequence[Document]) -> Store:
        """The store of whole contexts, template prefix included, of the held-out documents."""
        prefix = len(self.prompts.encode(self.prompts.frame.prefix))
        return Store(self.folder("held out"), self.shape, [prefix + document.tokens for document in documents])

    def training(self, documents: Sequence[Document]) -> Store:
        """The store of the tokens sampled from the training documents."""
        folder = self.folder("train", self.excerpts.sizes.tokens_per_doc)
        return Store(folder, self.shape, [document.rows for document in documents])

    def fill(self, store: Store, documents: Sequence[Document], whole: bool) -> None:
        """Collect what ``store`` lacks: the whole context of each document, or the tokens sampled from it."""
        if store.done == len(documents):
            return
        check_disk(store)
        for number in self.progress.over("collecting", store.done, len(documents)):

            def put(layer: int, x: Tensor, y: Tensor, number: int = number) -> None:
                store.put(number, layer, x, y)

            self._run(documents[number], whole, put)
            store.finish(number)

    def moments(self, documents: Sequence[Document]) -> Moments:
        """Running moments of the tokens sampled from the documents, with no store of features.

        A saved state is the start of any longer plan. For a shorter one it is of no use, and is left as it is.
        """
        folder = self.folder("moments", self.excerpts.sizes.tokens_per_doc)
        folder.mkdir(parents=True, exist_ok=True)
        shape, count, state = self.shape, len(documents), folder / "moments.safetensors"
        moments = Moments.load(state) if state.is_file() else None
        longer = moments is not None and moments.documents > count
        if moments is None or longer:
            moments = Moments(shape.layers, shape.features, shape.heads)
        for number in self.progress.over("collecting", moments.documents, count):
            self._run(documents[number], False, moments.add)
            moments.documents = number + 1
            if not longer and (moments.documents % SAVE_EVERY == 0 or moments.documents == count):
                moments.save(state)
        return moments

    def _run(self, document: Document, whole: bool, take: Callable[[int, Tensor, Tensor], None]) -> None:
        excerpt = self.excerpts.cut(document.subset, document.row)
        assert excerpt is not None, "a planned document is long enough"
        chat = repetition(self.prompts, excerpt.ids)
        rows = list(range(chat.context)) if whole else [chat.prefix + place for place in excerpt.places]
        collect(self.lm, chat, self.features, lambda layer, x, y: take(layer, x[rows], y[rows]))


def check_disk(store: Store) -> None:
    """:class:`HarnessError` where the disk lacks the space that the store still needs."""
    needed, free = store.missing_bytes(), shutil.disk_usage(store.folder).free
    if needed > free:
        raise HarnessError(
            f"features and targets need another {needed / 1e9:.1f} GB in {store.folder}, where {free / 1e9:.1f} GB are "
            "free; set XDG_CACHE_HOME to a larger disk, or give fewer --documents or --tokens-per-doc"
        )
