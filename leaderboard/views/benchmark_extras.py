"""What the benchmark page shows of some benchmarks alone: metrics such as KL, sampled answers, several questions."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from harness.results.schema import Alarm, Cell, Line, Metric
from leaderboard.charts.metric_curves import metric_chart
from leaderboard.charts.multi_question import prefill_chart, question_chart
from leaderboard.charts.pass_at_k import pass_chart
from leaderboard.data import multi_question, pass_at_k
from leaderboard.data.levels import CONTROL, at_level, level_name, levels, one_level
from leaderboard.data.metrics import metric_table, shown_metrics
from leaderboard.escaping import plain
from leaderboard.views.layout import current_theme


def metrics(overall: Sequence[Cell], declared: Sequence[Metric], methods: Sequence[str], is_fidelity: bool) -> None:
    """What the benchmark declares beside its score, such as KL, over what was removed."""
    shown = shown_metrics(overall, declared)
    if not shown:
        return
    title = "How near the predictions stay to the full cache’s" if is_fidelity else "Metrics beside the score"
    st.subheader(title, anchor=False)
    table = metric_table(overall, shown)
    for start in range(0, len(shown), 2):
        for place, metric in zip(st.columns(2), shown[start : start + 2], strict=False):
            with place:
                st.altair_chart(metric_chart(table, metric, methods), key=metric.name)
    about = (
        "All variants read the same reference as the full cache, whose own KL is 0, score (top-1 agreement) 100 and "
        "ratio 1. The 95th percentile is that of one sample’s tokens, averaged over samples. "
    )
    st.caption(
        f"{about if is_fidelity else ''}A logarithmic axis has no place for 0. Bars: 95 % intervals, from 10 samples "
        "per subset on."
    )


def rollouts(overall: Sequence[Cell], lines: Sequence[Line], alarms: Sequence[Alarm]) -> None:
    """pass@k, the rollouts one by one, answers cut off. ``alarms`` are the board's."""
    st.subheader("Sampled answers", anchor=False)
    sampling = pass_at_k.sampling(overall)
    if sampling:
        st.caption(plain(sampling))
    for alarm in alarms:
        if alarm.kind in ("truncated", "answer_limit"):
            st.warning(plain(alarm.text), icon=":material/content_cut:")
    table = pass_at_k.pass_table(overall, pass_at_k.truncated_shares(lines))
    st.altair_chart(pass_chart(table, current_theme()), key="passes")
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
        "pass@1: the share of a problem’s answers that are right, averaged over problems, ± its standard error. pass@k:"
        " the chance that one of k answers is right, unbiased (Chen et al. 2021). Right, rollout i: problems that this "
        "rollout got right. Answered: with a final result. At limit: cut off at the limit of new tokens. Truncated: "
        "not run, since the prompt does not fit."
    )


def several_questions(
    cells: Sequence[Cell], level: str, lines: Sequence[Line], seed: int, methods: Sequence[str]
) -> None:
    """Scores by the place of a question, prefills by query mode; at one level, as a method has one line in each panel.

    cells   the board's overall ones
    """
    st.subheader("Several questions on one context", anchor=False)
    names = [level_name(one) for one in levels(cells)]
    if names:
        level = one_level(names, level)
        cells = at_level(cells, level)
        st.markdown(f"At level **{plain(level)}**.")
    scores = {cell.variant: cell.score for cell in cells}
    own = [line for line in lines if line.variant in scores]
    by_question = multi_question.by_question(own, seed)
    if by_question.empty:
        st.info("No line of these variants in samples.jsonl says which question it is of.")
        return
    st.altair_chart(question_chart(by_question, methods), width="content", key="questions")
    st.caption(
        "Score by the question’s place among those of its context, a panel per query mode. agnostic: pruned once, no "
        "question in view; aware-reused: once, with the first question in view; aware: again for each question. Bars: "
        "95 % intervals over contexts, from 10 contexts on."
    )
    paid = multi_question.prefills(own, scores)
    if paid.empty:
        st.info("No line says how many prefills were paid (prefills_paid), so what the questions cost is not known.")
        return
    if (paid["name"] != CONTROL).any():
        st.altair_chart(prefill_chart(paid, current_theme(), methods), key="prefills")
    figures = {"score": st.column_config.NumberColumn(format="%.1f")}
    st.dataframe(paid.drop(columns=["name", "method"]), hide_index=True, key="prefills table", column_config=figures)
    st.caption(
        "A pruned cache answers every question that it was pruned for; in mode aware each question needs the full "
        "cache again. An extra pass, such as KVzip’s, is no prefill of the context and is not counted."
    )
