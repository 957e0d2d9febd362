"""``compat="kvpress"``: the choices of NVIDIA/kvpress 0.5.5 where this package makes others.

Scores are ours, in float32, except that KVzip's softmax gets kvpress's sinks. What changes is which pairs are sure to
stay, how numbers are rounded (:func:`methods.budgets.kvpress_mask`) and how a prompt is put together. A method says in
:attr:`methods.base.Method.kvpress` what kvpress has of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from methods.base import Method, MethodError, Protection

CHOICES = ("", "kvpress")
#: newest pairs that the threshold policy (DMSPress) never judges, whatever scores it is given
DMS_WINDOW = 128


@dataclass(frozen=True)
class Kvpress:
    """What kvpress has of a method.

    budgets  of the method's own budgets those that kvpress has: ``head`` is its ScorerPress, ``layer`` AdaKVPress,
             ``threshold`` DMSPress, ``global`` KVzipPress
    sinks    first pairs that rank above all others, beside the method's own mechanism; ``--sinks`` replaces them
    pooled   KVzipPress: what is rounded is the number removed over all heads (and layers) at once, and no head is sure
             of a share; its ``layer`` is the option ``layerwise``
    decodes  whether DMSPress can go on with the scores while decoding: it shows a method the new pairs alone
    """

    budgets: tuple[str, ...] = ("head", "layer", "threshold")
    sinks: int = 0
    pooled: bool = False
    decodes: bool = False

    def protection(self, budget: str) -> Protection:
        """What stays under a budget, in place of the protection that a method was published with."""
        return Protection(sinks=self.sinks, window=DMS_WINDOW if budget == "threshold" else 0)


def check(method: Method) -> Method:
    """The method itself; :class:`MethodError` where its ``compat`` is no known word."""
    if method.compat not in CHOICES:
        raise MethodError(f"{method.name}.compat must be empty or kvpress, got {method.compat!r}")
    return method


def refusal(method: Method, budget: str, phase: str, counts: bool) -> str:
    """Why kvpress cannot do this, empty where it can; ``counts`` says that levels are numbers of pairs."""
    theirs = method.kvpress
    if theirs is None:
        return f"NVIDIA/kvpress has no {method.name}; leave compat off"
    if lacks := method.kvpress_lacks():
        return lacks
    if budget not in theirs.budgets:
        return f"NVIDIA/kvpress has no budget {budget!r} for {method.name}; it has {', '.join(theirs.budgets)}"
    if phase != "prefill" and not (budget == "threshold" and theirs.decodes):
        return f"while decoding NVIDIA/kvpress has the threshold budget only, not {budget!r} with {method.name}"
    if phase == "decode":
        return "NVIDIA/kvpress judges the context too where it prunes while decoding; use --phase both"
    if counts and budget != "threshold":
        return "NVIDIA/kvpress takes removed fractions, no --keep-tokens"
    return ""
