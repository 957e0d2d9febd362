"""Adaptivity: what one threshold removes of each prompt, what others would, and thresholds against fixed budgets."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from leaderboard.data import histograms, thresholds
from leaderboard.data.differences import lines_of
from leaderboard.data.disk_cache import digest
from leaderboard.data.library import Entry, distinct
from leaderboard.views import adaptivity_sections
from leaderboard.views.layout import brief, frame, guarded, plain


@st.cache_resource(show_spinner="Reading score histograms", max_entries=4)
def _stored(stamp: str, _entries: Sequence[Entry]) -> tuple[list[histograms.Stored], list[str]]:
    return histograms.stored(_entries)


view = frame(
    "Adaptivity",
    "A threshold has no fixed budget: it removes more where a prompt has less to say (KVzap paper, Figure 5).",
)
models = sorted({str(group.part.basis["model"]) for group in view.groups})
model = models[0]
if len(models) > 1:
    chosen = st.selectbox("Thresholds are a model’s own; of model", models, key="of", bind="query-params")
    model = chosen if chosen in models else model
own = [group for group in view.groups if str(group.part.basis["model"]) == model]
names = distinct(own, lambda g: g.part.benchmark + (f", {g.part.length:,} tokens" if g.part.length else ""))
groups = {names[group.key]: group for group in own}
lines, boards = {}, {}
for name, group in groups.items():
    with guarded(group.title):
        boards[name], lines[name] = view.library.board(group), lines_of(group)
entries = list({entry.path: entry for group in groups.values() for entry in group.entries}.values())
stored: list[histograms.Stored] = []
broken: list[str] = []
with guarded("The score histograms"):
    # as text: Streamlit encodes what it is given, and the name of a folder may be no characters
    stored, broken = _stored(ascii([entry.stamp for entry in entries]), entries)
for told in broken:
    st.warning(plain(told))

with guarded("The thresholds"):
    everything = [line for own in lines.values() for line in own]
    sources = thresholds.source_names(thresholds.sources(everything, (one.histogram for one in stored)))
    everywhere = sources
    sources = {source: name for source, name in sources.items() if not view.methods or source.method in view.methods}
    if everywhere and not sources:
        st.info(f"The filter “Show methods” hides all thresholds here: {plain(', '.join(everywhere.values()), 600)}.")
        st.stop()
    if not sources:
        st.info("No run here has a threshold without the question in view. Make one, then reload this page:")
        st.code("python -m harness run --method kvzap --removed 0.25,0.5,0.75,0.875", language="bash")
        st.stop()
    by_name = {name: source for source, name in sources.items()}
    left, right = st.columns(2)
    with left:
        chosen = st.selectbox("Scores of", list(by_name), key="scores", bind="query-params")
    source = by_name[chosen if chosen in by_name else next(iter(by_name))]
    with right:
        rows = st.segmented_control(
            "Rows",
            [adaptivity_sections.BENCHMARKS, adaptivity_sections.SUBSETS],
            default=adaptivity_sections.BENCHMARKS,
            key="rows",
            bind="query-params",
        )
    by_subset = rows == adaptivity_sections.SUBSETS
    with guarded("The thresholds that were run"):
        adaptivity_sections.one_threshold(lines, source, by_subset)
    with guarded("What a threshold would remove"):
        prompts = histograms.prompts_of(stored, groups, source)
        key = "tau" if source == next(iter(sources)) else f"tau-{digest(brief(sources[source]))[:6]}"
        adaptivity_sections.any_threshold(prompts, lines, boards, source, by_subset, key)
    with guarded("The fixed budgets"):
        adaptivity_sections.fixed_budgets(boards, source)
