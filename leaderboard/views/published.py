"""Published: figures from papers, each with its source; nothing that was measured here."""

from __future__ import annotations

import streamlit as st

from harness.errors import HarnessError
from leaderboard.charts import published as charts
from leaderboard.data.published import Published, load, r2_points, results_table, rollout_points, table
from leaderboard.escaping import plain


def page() -> None:
    st.title("Published, not measured here")
    st.caption(
        "Figures from papers as printed there. No run of this board is among them, and none of them is on its charts."
    )
    st.sidebar.caption("Filters choose among measured runs; on this page they change nothing.")
    try:
        published = load()
    except HarnessError as error:
        st.error(plain(error))
        st.stop()
    for paper in published.papers.values():
        st.markdown(f"{plain(paper.title)} ([{plain(paper.name)}]({paper.url}))")
    _results(published)
    left, right = st.columns(2, gap="large")
    with left:
        _rollouts(published)
    with right:
        _windows(published)
    left, right = st.columns(2, gap="large")
    with left:
        _surrogates(published)
    with right:
        _overheads(published)


def _results(published: Published) -> None:
    st.subheader("Full and pruned cache", anchor=False)
    st.caption(plain(published.sources([*published.results, *published.removed])))
    results = results_table(published)
    st.altair_chart(charts.change_chart(results), width="content", key="change", alt="Scores of full and pruned cache")
    st.dataframe(results, hide_index=True, placeholder="–", height="content", key="results")


def _rollouts(published: Published) -> None:
    st.subheader("AIME25, each of four answers", anchor=False)
    st.caption(plain(published.sources(published.rollouts)))
    st.altair_chart(charts.rollout_chart(rollout_points(published)), key="rollouts", alt="Problems solved of 30")
    st.dataframe(table(published, published.rollouts), hide_index=True, placeholder="–", key="rollouts-table")


def _windows(published: Published) -> None:
    st.subheader("Without the recent window", anchor=False)
    st.caption(plain(published.sources(published.windows)))
    windows = table(published, published.windows)
    st.altair_chart(charts.window_chart(windows), key="windows", alt="Score on LCC by window")
    st.dataframe(windows, hide_index=True, key="windows-table")


def _surrogates(published: Published) -> None:
    st.subheader("How well surrogates predict KVzip+", anchor=False)
    st.caption(plain(published.sources(published.surrogates)))
    st.altair_chart(charts.r2_chart(r2_points(published)), key="r2", alt="Squared correlation by model")
    surrogates = table(published, published.surrogates).rename(columns={"r2_linear": "R2 linear", "r2_mlp": "R2 MLP"})
    st.dataframe(surrogates, hide_index=True, key="r2-table")


def _overheads(published: Published) -> None:
    st.subheader("What surrogates cost", anchor=False)
    st.caption(plain(published.sources(published.overheads)))
    overheads = table(published, published.overheads)
    st.altair_chart(charts.overhead_chart(overheads), key="overheads", alt="Surrogate's share of FLOPs")
    st.dataframe(overheads, hide_index=True, key="overheads-table")


if __name__ == "__main__":
    page()
