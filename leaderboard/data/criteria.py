"""The four criteria of the KVzap paper (arXiv 2601.07891, section 1) for each method: light, phase-agnostic,
kernel-friendly, faithful. Figures are measured ones; between two measured levels of a curve they are interpolated, and
beyond them there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from harness.analysis.ranking import is_partial
from harness.results.method_cards import Card
from harness.results.schema import Cell
from leaderboard.data.levels import control_of
from leaderboard.data.library import Group
from leaderboard.data.standings import ReadOff, read_off

#: removed fractions at which faithfulness is asked for
LEVELS = (0.5, 0.75)
NOT_MEASURED = "not measured"
#: mean KL divergence from the full cache a token, in nats
KL = "kl_mean"


def usable(cell: Cell) -> bool:
    """Whether an overall cell of a pruned variant carries a claim: it ran whole, its control is not at the floor."""
    return (
        cell.subset is None
        and cell.level_kind != "none"
        and cell.status != "unsupported"
        and cell.score is not None
        and cell.removed_mean is not None
        and not cell.n_failed
        and not cell.floor
        and not is_partial(cell)
    )


def curves(cells: Iterable[Cell], figure: Callable[[Cell], float | None]) -> dict[str, list[tuple[float, float]]]:
    """``(removed, figure)`` of the usable cells of each curve that has the figure."""
    found: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        if usable(cell) and (value := figure(cell)) is not None:
            found.setdefault(cell.curve, []).append((cell.removed_mean or 0.0, value))
    return found


def score(cell: Cell) -> float | None:
    return cell.score


def kl(cell: Cell) -> float | None:
    return cell.metrics.get(KL)


def fidelity_group(group: Group, groups: Sequence[Group]) -> Group | None:
    """Where the KL of a board's methods is measured: the board itself, or among the others of its model that of its
    own prompts (``fidelity:NAME``), then of any."""
    if group.part.benchmark.startswith("fidelity"):
        return group
    model = group.part.basis["model"]
    others = [
        other for other in groups if other.part.benchmark.startswith("fidelity") and other.part.basis["model"] == model
    ]
    own = f"fidelity:{group.part.benchmark}"
    return min(
        others, key=lambda other: (other.part.benchmark != own, other.part.length != group.part.length), default=None
    )


def rows(cards: Iterable[Card], cells: Sequence[Cell], kl_cells: Sequence[Cell]) -> list[dict[str, str]]:
    """A row per curve of each method, and one of each method that was not measured; the control is left out."""
    scores, kls = curves(cells, score), curves(kl_cells, kl)
    budgets: dict[str, dict[str, str]] = {}  # of each curve, by method
    for cell in [*cells, *kl_cells]:
        if cell.subset is None and cell.level_kind != "none" and cell.status != "unsupported":
            budgets.setdefault(cell.method, {}).setdefault(cell.curve, cell.budget)
    return [
        {
            "method": name,
            **_light(card, [cell for cell in cells if name == cell.curve], cells),
            "prunes in": _phases(card),
            "attention weights": _weights(card),
            "caches of heads": _lengths(card, budget),
            **{f"score at {_percent(x)}": told(read_off(scores.get(name, ()), x), "{:.1f}") for x in LEVELS},
            # KL grows over decades from level to level; its curves are drawn on a log axis too
            **{f"KL at {_percent(x)}": told(read_off(kls.get(name, ()), x, log=True), "{:.4f}") for x in LEVELS},
        }
        for card in cards
        if not card.control
        for name, budget in (budgets.get(card.name) or {card.name: card.budget}).items()
    ]


def told(found: ReadOff | None, form: str) -> str:
    """``41.0``; ``≈ 41.0`` where it lies between measured ones."""
    if found is None:
        return NOT_MEASURED
    return ("" if found.measured else "≈ ") + form.format(found.score)


def _light(card: Card, own: Sequence[Cell], cells: Sequence[Cell]) -> dict[str, str]:
    """Times against the control's where runs have timed both, else what the class says of its cost."""
    control = control_of(cells)
    first = _ratio(own, control, "ttft_seconds")
    steps = _ratio(own, control, "tokens_per_second")
    cost = card.cost or "unknown"
    decode = "prunes the prefill only" if card.phases == ("prefill",) else f"{cost}, for each new token"
    if cost in ("none", "unknown") and card.phases != ("prefill",):
        decode = cost
    return {
        "cost in prefill": cost if first is None else f"time to first token x {first:.2f}",
        "cost in decode": decode if steps is None else f"tokens per second x {steps:.2f}",
    }


def _ratio(own: Sequence[Cell], control: Cell | None, metric: str) -> float | None:
    """The mean of a metric over a curve's overall cells, over the control's."""
    values = [v for cell in own if cell.subset is None and (v := cell.metrics.get(metric)) is not None]
    base = control.metrics.get(metric) if control else None
    return sum(values) / len(values) / base if values and base else None


def _phases(card: Card) -> str:
    if card.plugin:
        return f"seen: {', '.join(card.phases)}"
    return "prefill and decode" if "both" in card.phases else ", ".join(card.phases)


def _weights(card: Card) -> str:
    if card.plugin:
        return "unknown"
    if card.extra_pass:
        return "in an extra pass"
    return " and ".join(card.attention_weights) or "no"


def _lengths(card: Card, budget: str) -> str:
    """How long the heads' caches are under a curve's budget, which may be another than the method's own."""
    if budget in ("layer", "global", "threshold"):
        return "different by head"
    return card.lengths or ("the same in all heads" if budget == "head" else "unknown")


def _percent(removed: float) -> str:
    return f"{removed:.0%} removed"
