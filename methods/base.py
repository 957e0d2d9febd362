"""The cache-mask interface: what a method sees, what it returns, what it may declare.

A method sees one attention layer at a time as an :class:`Observation` and returns scores ``[H, T]``.
A budget (:mod:`methods.budgets`) turns scores into a keep mask; the mask is the only thing that the engines,
the accounting and the board take from a method.

Shapes are named once, here:

====  ==========================================================================
L     layers that can be pruned (layers with a sliding window are not counted)
H     KV heads; Hq query heads; G = Hq / H; query head q reads KV head q // G
d, D  head size, hidden width
T     cached length of the context; P of its pairs are the template prefix
n     tokens of the forward that is being observed; C cached length after it
====  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

# Errors and protection are part of the interface, so plugins may import them from here.
from methods.errors import MethodError as MethodError
from methods.errors import Unsupported as Unsupported
from methods.kvpress import Kvpress
from methods.protection import Protection as Protection


@dataclass(frozen=True)
class ModelInfo:
    """The shape of a model, all that a method may know about it before it runs.

    ``name`` is the name or path the user gave; ``layers`` counts prunable layers only; ``rope_scaling`` is how their
    RoPE is scaled: ``default`` (not at all), ``linear``, ``llama3``, ``yarn``, ``dynamic``, ``longrope``.
    """

    name: str
    layers: int
    query_heads: int
    kv_heads: int
    head_size: int
    hidden_size: int
    rope_scaling: str = "default"

    @property
    def group(self) -> int:
        """G, the number of query heads that share a KV head."""
        return self.query_heads // self.kv_heads


@dataclass(frozen=True)
class Generated:
    """The target of a pass that the model writes itself: the full cache's greedy answer to what comes before it, of at
    most ``most`` tokens, its stop token left out. It may be empty."""

    most: int


@dataclass(frozen=True)
class Pass:
    """One extra forward over the full cache (KVzip's second pass); what it appends to the cache is dropped.

    The engine runs ``encode(instruction) + ids[lead_in] + template suffix + target`` at positions T, T+1, ...

    target    a span of cached positions, whose tokens are run again; a text; or an answer, :class:`Generated`
    lead_in   a span of cached positions
    scored    the span of columns that :meth:`Method.score_pass` returns; None: ``target``, where that is a span

    Two methods whose passes are equal share the forward and the answer generated for it.
    """

    instruction: str
    target: tuple[int, int] | str | Generated
    lead_in: tuple[int, int] | None = None
    scored: tuple[int, int] | None = None

    @property
    def columns(self) -> tuple[int, int]:
        """The span of cached positions that the pass scores."""
        if self.scored is not None:
            return self.scored
        if not isinstance(self.target, tuple):
            raise MethodError("a pass whose target is not a span must say in `scored` which columns it scores")
        return self.target


@dataclass
class Lent:
    """What methods are shown and may not change: remembers how often torch has seen each tensor written to."""

    _lent: list[tuple[Tensor, int]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._lend([getattr(self, one.name) for one in fields(self)])

    def _lend(self, values: Iterable[Any]) -> None:
        tensors = (one for one in values if isinstance(one, Tensor) and not one.is_inference())
        self._lent += [(one, one._version) for one in tensors]

    def written(self) -> bool:
        """Whether any of it was changed in place since it was lent."""
        return any(tensor._version != version for tensor, version in self._lent)


@dataclass(kw_only=True)
class Observation(Lent):
    """What one attention layer shows in one forward, after its attention has been computed.

    Everything is as the attention kernel receives it: after QK-norm and RoPE, the same for every model family.

    layer           0 <= layer < L, counted over prunable layers
    hidden          ``[n, D]`` input of the attention module, after the layer's norm
    queries         ``[Hq, n, d]``
    keys, values    ``[H, C, d]``; the last n columns belong to this forward
    positions       ``[n]`` position ids of the new tokens
    scaling         factor on query-key products (usually d ** -0.5)
    prefix          P, the length of the template prefix
    context_seed    a seed made from the run's seed and the context, for methods that draw numbers
    block_bytes     the largest temporary a method should make, in bytes
    rotation        positions ``[m]`` -> the model's RoPE cos and sin for them, ``[m, r]`` (see :mod:`methods.rope`)
    """

    layer: int
    hidden: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    positions: Tensor
    scaling: float
    prefix: int
    context_seed: int
    block_bytes: int
    project: Callable[[], Tensor]
    rotation: Callable[[Tensor], tuple[Tensor, Tensor]]
    _shared: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def new(self) -> int:
        """n, the number of tokens of this forward."""
        return self.queries.shape[1]

    @property
    def cached(self) -> int:
        """C, the cached length after this forward."""
        return self.keys.shape[1]

    @property
    def group(self) -> int:
        return self.queries.shape[0] // self.keys.shape[0]

    @property
    def output_projection(self) -> Tensor:
        """W_O as ``[Hq, D, d]``: the columns of the output projection that belong to each query head."""
        return self.shared("output_projection", self.project)

    def shared(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """``make()`` on first use; later callers, other methods included, get the same object. None may change it."""
        if key not in self._shared:
            self._shared[key] = made = make()
            self._lend(made if isinstance(made, tuple | list) else [made])
        return self._shared[key]


@dataclass(kw_only=True)
class Step(Lent):
    """What one attention layer shows in one forward while decoding, for V variants, after its attention is computed.

    layer           0 <= layer < L, counted over prunable layers
    hidden          ``[V, n, D]``
    queries         ``[V, Hq, n, d]``
    keys, values    ``[V, H, n, d]``: only the new pairs
    positions       ``[n]``
    context_seed    as in :class:`Observation`
    weight_sums     ``[V, Hq, C]``: attention weights of this forward, summed over its n queries; of hidden pairs 0
    last_weights    ``[V, Hq, C]``: attention weights of its newest query
    The two are there only for methods whose ``needs`` has "weights".
    """

    layer: int
    hidden: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    positions: Tensor
    context_seed: int
    weight_sums: Tensor
    last_weights: Tensor

    @property
    def new(self) -> int:
        return self.queries.shape[2]

    @property
    def group(self) -> int:
        return self.queries.shape[1] // self.keys.shape[1]


def path_option() -> Any:
    """An option that names a file or folder and is empty by default. A variant records its last part and the beginning
    of the method's fingerprint, so that no path of this machine is in the results."""
    return field(default="", metadata={"path": True})


def loaded() -> Any:
    """A field for what :meth:`Method.bind` loads, None before that: not an option, and no part of what makes two
    methods equal."""
    return field(default=None, repr=False, compare=False, kw_only=True, metadata={"option": False})


@dataclass(frozen=True)
class Method:
    """A pruning method. Subclass, set the class variables, write :meth:`score`, and ``@register`` it.

    The fields of a subclass are its options: they have defaults, are typed ``int``, ``float``, ``bool`` or ``str``,
    and are set by ``--option NAME.FIELD=VALUE``. One that names a file is made by :func:`path_option`; a field that is
    not an option by :func:`loaded`. Every method has the option

    compat   "kvpress": NVIDIA/kvpress's protection, rounding and prompts (see :mod:`methods.kvpress`)
    """

    compat: str = field(default="", kw_only=True)

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    cost: ClassVar[str] = "none"
    #: what scoring reads: any of "hidden", "queries", and while decoding "weights" (keys and values are always there)
    needs: ClassVar[frozenset[str]] = frozenset()
    phases: ClassVar[tuple[str, ...]] = ("prefill",)
    default_budget: ClassVar[str] = "head"
    budgets: ClassVar[tuple[str, ...]] = ("head", "layer", "global", "threshold")
    #: why a budget that is not among ``budgets`` makes no sense, for the message
    refused: ClassVar[dict[str, str]] = {}
    #: protection the method was published with; ``--sinks`` and ``--window`` replace it
    protection: ClassVar[Protection] = Protection()
    #: pairs that the method itself always keeps; no flag takes them away
    mechanism: ClassVar[Protection] = Protection()
    #: least and largest score of the stored histograms, for methods whose thresholds mean something; None: no histogram
    score_range: ClassVar[tuple[float, float] | None] = None
    #: positions of kept pairs: "original", or "cache", the number of pairs kept before each, keys rotated accordingly
    positions: ClassVar[str] = "original"
    #: what NVIDIA/kvpress has of the method; None: nothing, and ``compat`` is refused
    kvpress: ClassVar[Kvpress | None] = None
    #: the control: removes nothing and takes no level
    is_control: ClassVar[bool] = False

    def mechanism_for(self, kept: int) -> Protection:
        """:attr:`mechanism` where a head keeps ``kept`` pairs, for methods whose own part depends on that number."""
        return self.mechanism

    def kept_by_layer(self, kept: int, cached: int, layers: int) -> list[int]:
        """Pairs that each layer's heads keep under the ``head`` budget, whose mean is ``kept``."""
        return [kept] * layers

    def bind(self, info: ModelInfo) -> Method:
        """A method ready for this model: weights loaded, shapes checked; a copy (:func:`dataclasses.replace`) where
        anything is loaded. Runs, and raises :class:`MethodError`, before the model loads."""
        return self

    def protects(self) -> Protection:
        """The published protection of this instance; options may change it."""
        return self.kvpress.protection(self.default_budget) if self.compat and self.kvpress else self.protection

    def protects_under(self, budget: str) -> Protection:
        """What this instance protects under a budget unless flags replace it."""
        return self.kvpress.protection(budget) if self.compat and self.kvpress else self.protects()

    def thresholds(self, info: ModelInfo) -> dict[str, float]:
        """Calibrated thresholds by removed fraction, as ``{"0.25": tau}``; empty where there are none."""
        return {}

    def score(self, seen: Observation) -> Tensor:
        """Scores of all cached pairs after the prefill, float32 ``[H, T]``, finite, higher = keep.

        A method that scores in passes of its own returns here what a pair is worth that no pass scores.
        """
        raise NotImplementedError

    def score_new(self, step: Step) -> Tensor:
        """Scores of a decode forward's new pairs, float32 ``[V, H, n]``. Only for methods that prune while decoding."""
        raise NotImplementedError

    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        """Scores of all C pairs after a decode forward, float32 ``[V, H, C]``, from those before it ``[V, H, C - n]``.

        By default old scores stay and those of :meth:`score_new` are appended.
        """
        return torch.cat([scores, self.score_new(step)], dim=-1)

    def passes(self, cached: int, prefix: int) -> list[Pass]:
        """Extra forwards that the method needs on a context of ``cached`` pairs, ``prefix`` of them the template's."""
        return []

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        """Scores of the columns ``run.columns`` from one extra forward, float32 ``[H, stop - start]``."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """What decides the scores besides code and options, such as a hash of loaded weights; empty if nothing."""
        return ""

    @classmethod
    def option_fields(cls) -> dict[str, Field[Any]]:
        """The fields that are options, by name in alphabetical order."""
        return {f.name: f for f in sorted(fields(cls), key=lambda f: f.name) if f.metadata.get("option", True)}

    def options(self) -> dict[str, Any]:
        """The options of this instance in a fixed order; all of them, but ``compat`` only where it is set."""
        return {name: getattr(self, name) for name in self.option_fields() if name != "compat" or self.compat}
