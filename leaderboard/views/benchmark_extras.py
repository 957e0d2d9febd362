"""What the benchmark page shows of some benchmarks alone: fidelity, drawn answers, several questions on a context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from harness.results.run_folder import Line
from leaderboard.charts.heatmap import level_name, levels
from leaderboard.charts.theme import look
from leaderboard.data import fidelity as closeness
from leaderboard.data import multi_question, pass_at_k
from leaderboard.views.benchmark_sections import at_level, one_level
from leaderboard.views.layout import plain

Row = dict[str, Any]


def fidelity(overall: Sequence[Row], lines: Sequence[Line], seed: int) -> None:
    """KL, agreement and perplexity over what was removed."""
    st.subheader("How near the predictions stay to the full cache’s", anchor=False)
    table = closeness.closeness(overall, lines, seed)
    if table.empty:
        st.info("Nothing pruned was measured here.")
        return
    places = [*st.columns(2), *st.columns(2)]
    for place, figure in zip(places, closeness.FIGURES, strict=True):
        with place:
            st.altair_chart(closeness.closeness_chart(table, figure), key=figure.metric)
    st.caption(
        "All variants read the same reference as the full cache, which has KL 0, agreement 100 and ratio 1 "
        "itself. KL and ratio are on logarithmic axes, where 0 has no place. The 95th percentile is that of one "
        "sample’s tokens, averaged over samples. Bars are 95 % intervals over samples, from 10 samples a subset "
        "on."
    )


def rollouts(overall: Sequence[Row], lines: Sequence[Line], alarms: Sequence[Row]) -> None:
    """pass@k, the rollouts one by one, answers cut off. ``alarms`` are the board's."""
    st.subheader("Drawn answers", anchor=False)
    told = pass_at_k.how_drawn(overall)
    if told:
        st.caption(plain(told))
    for alarm in alarms:
        if alarm["kind"] in ("truncated", "answer_limit"):
            st.warning(plain(alarm["text"]), icon=":material/content_cut:")
    table = pass_at_k.passes(overall, pass_at_k.truncated_shares(lines))
    st.altair_chart(pass_at_k.pass_chart(table, look()), key="passes")
    number = st.column_config.NumberColumn
    st.dataframe(
        table.drop(columns=["name", "low", "high"]),
        hide_index=True,
        key="passes table",
        column_config={
            **{name: number(format="percent") for name in pass_at_k.SHARES},
            **{str(name): number(format="%.1f") for name in table if str(name).startswith("pass@")},
            "se": number("± se", format="%.1f"),
            "removed": number(format="%.3f"),
        },
    )
    st.caption(
        "pass@1: the share of a problem’s answers that are right, averaged over problems, ± its standard error "
        "over problems. pass@k: the chance that one of k answers is right, without bias (Chen et al. 2021). "
        "Right, rollout i: problems that this rollout got right. Answered: answers with a final result. At limit:"
        " answers that ran into the limit of new tokens. Truncated: answers not given since the prompt does not "
        "fit."
    )


def several_questions(cells: Sequence[Row], level: str, lines: Sequence[Line], seed: int) -> None:
    """Scores by the place of a question, prefills by query mode; at one level, as a method has one line in each panel.

    cells   the board's overall ones
    """
    st.subheader("Several questions on one context", anchor=False)
    names = [level_name(one) for one in levels(cells)]
    if names:
        level = one_level(names, level)
        cells = at_level(cells, level)
        st.markdown(f"At level **{plain(level)}**.")
    scores = {cell["variant"]: cell["score"] for cell in cells}
    own = [line for line in lines if line.variant in scores]
    asked = multi_question.by_question(own, seed)
    if asked.empty:
        st.info("samples.jsonl has no line of these variants that says which question it is of.")
        return
    st.altair_chart(multi_question.question_chart(asked), width="content", key="questions")
    st.caption(
        "Score by the question’s place among those asked of its context, a panel a query mode. agnostic: pruned "
        "once, no question in view; aware-reused: with the first question in view, the others asked of what is "
        "left; aware: anew for each question. Bars are 95 % intervals over contexts, from 10 contexts on."
    )
    paid = multi_question.prefills(own, scores)
    if paid.empty:
        st.info("No line says how many prefills were paid (prefills_paid), so what the questions cost is not known.")
        return
    if (paid["level"] != "full cache").any():
        st.altair_chart(multi_question.prefill_chart(paid, look()), key="prefills")
    figures = {"score": st.column_config.NumberColumn(format="%.1f")}
    st.dataframe(paid.drop(columns="name"), hide_index=True, key="prefills table", column_config=figures)
    st.caption(
        "A pruned cache answers every question that it was pruned for; in mode aware each question needs the full"
        " cache again. An extra pass, such as KVzip’s, is no prefill of the context and is not counted."
    )
