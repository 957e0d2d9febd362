"""Where surrogates are found: next to this file, in NVIDIA's repositories on the hub, or where the user says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from methods.base import MethodError, ModelInfo
from methods.kvzap.files import CONFIG, WEIGHTS, Stored, load, read_card
from methods.kvzap.surrogate import KINDS, needed_shape
from methods.pretexts import is_bound_name

FOLDER = Path(__file__).parent / "weights"
#: names of a model that has weights here -> its folder
COMMITTED = {
    "smollm2-135m": "smollm2-135m",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "smollm2-135m",
}


@dataclass(frozen=True)
class Published:
    """Surrogates that NVIDIA publishes for a model.

    thresholds   those the paper evaluates, ascending; it calibrates none to a removed fraction
    r2           squared Pearson correlation on held-out text by kind, from the paper
    """

    repository: str
    thresholds: tuple[float, ...]
    r2: dict[str, float] = field(hash=False)

    def name(self, kind: str) -> str:
        return self.repository.format(kind=kind)


_QWEN, _LLAMA = (-6.0, -5.0, -4.0, -3.0), (-9.0, -8.0, -7.0, -6.0)
PUBLISHED = {
    "Qwen/Qwen3-8B": Published("nvidia/KVzap-{kind}-Qwen3-8B", _QWEN, {"linear": 0.671, "mlp": 0.711}),
    "Qwen/Qwen3-32B": Published("nvidia/KVzap-{kind}-Qwen3-32B", _QWEN, {"linear": 0.629, "mlp": 0.668}),
    "meta-llama/Llama-3.1-8B-Instruct": Published(
        "nvidia/KVzap-{kind}-Llama-3.1-8B-Instruct", _LLAMA, {"linear": 0.743, "mlp": 0.772}
    ),
}


def committed(model: str, kind: str) -> Path | None:
    """The folder of the weights that come with this package, None where there are none for the model."""
    folder = FOLDER / COMMITTED.get(model, "") / kind
    return folder if model in COMMITTED and (folder / WEIGHTS).is_file() else None


def thresholds(model: str, kind: str, where: str) -> dict[str, float]:
    """Thresholds by removed fraction, as the card of ``where`` (or of the model's own weights) has them.

    Published weights have no card. Their thresholds are keyed by themselves (``{"-6": -6.0}``): no key is a fraction,
    because nobody measured which fraction each removes.
    """
    folder = Path(where) if where else committed(model, kind)
    if folder is not None and folder.is_dir():
        return {share: float(tau) for share, tau in read_card(folder).get("thresholds", {}).items()}
    if model in PUBLISHED and not Path(where).is_file():
        return {f"{tau:g}": tau for tau in PUBLISHED[model].thresholds}
    return {}


def best_kind(model: str) -> str:
    """The kind with the better held-out R2 for a model: by the cards that come with this package, else by the paper,
    else the MLP, which is the better one for all models of the paper."""
    cards = {kind: read_card(folder) for kind in KINDS if (folder := committed(model, kind)) is not None}
    scores = {kind: float(card["r2"]) for kind, card in cards.items() if "r2" in card}
    if not scores and model in PUBLISHED:
        scores = PUBLISHED[model].r2
    return max(scores, key=lambda kind: scores[kind], default="mlp")


def find(info: ModelInfo, kind: str, where: str = "") -> Stored:
    """The surrogate of a kind for a model: at ``where`` (a path, or a name on the hub), else the one that comes with
    this package, else NVIDIA's. None, or one that does not fit the model: :class:`MethodError` that says what to do."""
    folder = committed(info.name, kind)
    if where:
        path = Path(where) if Path(where).exists() else _fetch(where, info.name, kind)
    elif folder is not None:
        path = folder
    elif info.name in PUBLISHED:
        path = _fetch(PUBLISHED[info.name].name(kind), info.name, kind)
    else:
        known = ", ".join([*COMMITTED, *PUBLISHED])
        raise MethodError(
            f"no kvzap_{kind} surrogate for model {info.name!r}; there are some for {known}. "
            + _way_out(info.name, kind)
        )
    stored = load(path)
    _check_fits(stored, info, kind, path)
    return stored


def _check_fits(stored: Stored, info: ModelInfo, kind: str, path: Path) -> None:
    """:class:`MethodError` where a surrogate has another kind or other sizes; any inner width of an MLP will do."""
    found = stored.surrogate.shape
    needed = needed_shape(info, kind, stored.surrogate.features)
    sizes = [(shape.kind, shape.input_dim, shape.output_dim, shape.n_modules) for shape in (found, needed)]
    if sizes[0] != sizes[1]:
        raise MethodError(
            f"the surrogate at {path} does not fit model {info.name!r}: it is {found}; needed is {needed} "
            f"(features: {stored.surrogate.features}). {_way_out(info.name, kind)}"
        )


def _way_out(model: str, kind: str) -> str:
    return (
        f"Train one with `kvprune train-kvzap --model {model} --kind {kind} --out FOLDER` "
        f"and give it with `--option kvzap_{kind}.weights=FOLDER`"
    )


def _fetch(repository: str, model: str, kind: str) -> Path:
    """A published surrogate, from the hub or its local cache; only the two files that are needed."""
    if is_bound_name(repository):
        raise MethodError(f"kvzap_{kind}.weights={repository} is how results name a surrogate; give its folder or file")
    if repository.startswith((".", "/", "~")) or repository.count("/") != 1:
        raise MethodError(
            f"no surrogate at {repository!r}; give a folder with {WEIGHTS} and {CONFIG}, a .safetensors file, "
            f"or OWNER/NAME of one on the hub. {_way_out(model, kind)}"
        )
    from huggingface_hub import snapshot_download  # only this way needs it

    try:
        return Path(snapshot_download(repository, allow_patterns=[WEIGHTS, CONFIG]))
    except Exception as error:  # no network, no such repository, no permission: a dozen kinds of two libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MethodError(
            f"could not fetch the kvzap_{kind} surrogate {repository} from huggingface.co ({reason}). Where there is "
            f"no network, copy its {WEIGHTS} and {CONFIG} into a folder and give "
            f"`--option kvzap_{kind}.weights=FOLDER`"
        ) from error
