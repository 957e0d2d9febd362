"""Methods: the KVzap paper's four criteria, then a card of each method, and how to add one."""

from __future__ import annotations

import streamlit as st

from harness.results.method_cards import Card, cards
from leaderboard.data.criteria import NOT_MEASURED, fidelity_group, rows
from leaderboard.data.method_cards import plugin_cards
from leaderboard.escaping import plain
from leaderboard.views.layout import View, frame, guarded, pick


def page() -> None:
    view = frame("Methods", "What each method does, what it needs, and how it meets four criteria.", without_runs=True)
    known: list[Card] = []
    with guarded("The built-in methods"):
        known += cards()
    with guarded("The methods of plugins"):
        known += plugin_cards(view.library.entries, [card.name for card in known])
    if view.methods:
        known = [card for card in known if card.control or card.name in view.methods]
    with guarded("The four criteria"):
        _criteria(view, known)
    st.subheader("Cards", anchor=False)
    left, right = st.columns(2, gap="medium")
    for place, card in enumerate(known):
        with (left, right)[place % 2], guarded(card.name):
            _card(card)
    _how_to_add()


def _criteria(view: View, known: list[Card]) -> None:
    st.subheader("Four criteria", anchor=False)
    st.markdown(
        "The KVzap paper ([arXiv 2601.07891](https://arxiv.org/abs/2601.07891)) asks four things of a method: "
        "**light** (what it costs in prefill and decode), **phase-agnostic** (it prunes in both), **kernel-friendly** "
        "(fast attention kernels give no attention weights; heads of one length need no ragged cache), **faithful** "
        "(what is left of the score, and how far predictions move from the full cache's)."
    )
    cells, kl_cells = [], []
    if view.groups:
        group = pick(view, "Scores of")
        cells = [cell for cell in view.library.board(group).cells if view.shows(cell)]
        other = fidelity_group(group, view.groups)
        kl_cells = [cell for cell in view.library.board(other).cells if view.shows(cell)] if other else []
        none = "not measured: no fidelity run of the model passes the filters"
        where = f"from {plain(other.title)}" if other else none
        st.caption(
            f"Scores from {plain(group.title)}; KL, in nats per token, {where}. ≈: interpolated between two measured "
            f"levels of a curve; outside of them: “{NOT_MEASURED}”. Costs are declared by the method's class, unless a "
            "run has timed it."
        )
    table = rows(known, cells, kl_cells)
    names = list(table[0]) if table else []
    figures = [name for name in names if name.endswith("removed")]
    short = {name: name.replace("% removed", " %").replace(" at ", ", ") for name in figures}
    st.dataframe(
        table,
        hide_index=True,
        key="criteria",
        height="content",
        column_order=["method", *figures, *(name for name in names if name not in ("method", *figures))],
        column_config={name: st.column_config.TextColumn(label, help=name) for name, label in short.items()},
    )


def _card(card: Card) -> None:
    with st.container(border=True):
        mark = " :violet-badge[plugin]" if card.plugin else ""
        st.markdown(f"#### {plain(card.name)}{mark}")
        st.markdown(f"*{plain(card.summary)}*")
        for paragraph in card.text:
            st.markdown(plain(paragraph, 2_000))
        facts = {
            "Paper": f"[{plain(card.paper)}]({card.paper_url})" if card.paper_url else plain(card.paper),
            "Prunes in": ""
            if card.control
            else plain(", ".join(phase for phase in card.phases if phase != "both" or len(card.phases) == 1)),
            "Reads": plain(", ".join(card.needs)) or ("" if card.plugin else "keys, values or positions alone"),
            "Extra pass": "yes" if card.extra_pass else "",
            "Cost": plain(card.cost),
            "Budget": plain(card.budget) + (f" (also {plain(others)})" if (others := _others(card)) else ""),
            "Always kept": plain(card.protection),
            "Positions": plain(card.positions),
            "Also called": plain(", ".join(card.aliases)),
        }
        st.markdown("  \n".join(f"**{name}:** {value}" for name, value in facts.items() if value))
        if card.options:
            st.dataframe(
                [{"option": o.name, "default": str(o.default), "what it is": o.about} for o in card.options]
                if not card.plugin
                else [{"option": o.name, "values run": str(o.default)} for o in card.options],
                hide_index=True,
                key=f"options-{card.name}",
            )
        if card.refused:
            st.caption("  \n".join(f"no {plain(budget)}: {plain(why)}" for budget, why in card.refused.items()))


def _others(card: Card) -> str:
    return ", ".join(budget for budget in card.budgets if budget != card.budget)


def _how_to_add() -> None:
    st.subheader("Add a method, submit results", anchor=False)
    st.markdown(
        "A method is one class with one function, in a file or a package of its own; nothing here is edited for it. "
        "`docs/add-a-method.md` explains it with code that runs: scores, options, protection, pruning while decoding, "
        "extra passes. Check it in seconds, then run it beside others:"
    )
    st.code(
        "kvprune check-method vnorm --plugin vnorm.py\nkvprune run --method vnorm,knorm,kvzap --plugin vnorm.py",
        language="bash",
    )
    st.markdown("To submit results, add the run folder to `results/` in a pull request, after it has passed:")
    st.code("kvprune validate results/YOUR-RUN", language="bash")


if __name__ == "__main__":
    page()
