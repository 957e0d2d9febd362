"""Adaptivity: what one threshold removes of each prompt, what others would, and thresholds against fixed budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import streamlit as st

from harness.analysis.boards import Board
from harness.results.schema import Line
from leaderboard.data import histograms, thresholds
from leaderboard.data.disk_cache import digest
from leaderboard.data.histograms import Source
from leaderboard.data.library import Entry, Group, distinct, lines_of
from leaderboard.escaping import brief, plain
from leaderboard.views import adaptivity_sections
from leaderboard.views.adaptivity_sections import BENCHMARKS, SUBSETS
from leaderboard.views.layout import View, frame, guarded


class _Place(NamedTuple):
    """A benchmark at a length: the runs that share its board, their lines, the board."""

    group: Group
    lines: list[Line]
    board: Board


def page() -> None:
    view = frame(
        "Adaptivity",
        "A threshold has no fixed budget: it removes more where a prompt has less to say (KVzap paper, Figure 5).",
    )
    places = _places(view, _model(view))
    entries = list({entry.path: entry for place in places.values() for entry in place.group.entries}.values())
    stored: list[histograms.Stored] = []
    broken: list[str] = []
    with guarded("The score histograms"):
        # as text: Streamlit encodes what it is given, and the name of a folder may not be valid text
        stored, broken = _stored(ascii([entry.stamp for entry in entries]), entries)
    for told in broken:
        st.warning(plain(told))
    with guarded("The thresholds"):
        lines = [line for place in places.values() for line in place.lines]
        names = thresholds.source_names(thresholds.sources(lines, (one.histogram for one in stored)))
        _shown(places, stored, names, _passing(view, names))


def _model(view: View) -> str:
    """The model by a box, where there are several: a threshold means something for one model only."""
    models = sorted({str(group.part.basis["model"]) for group in view.groups})
    if len(models) == 1:
        return models[0]
    chosen = st.selectbox("Thresholds are specific to a model; of model", models, key="of", bind="query-params")
    return chosen if chosen in models else models[0]


def _places(view: View, model: str) -> dict[str, _Place]:
    own = [group for group in view.groups if str(group.part.basis["model"]) == model]
    names = distinct(own, lambda g: g.part.benchmark + (f", {g.part.length:,} tokens" if g.part.length else ""))
    found = {}
    for group in own:
        with guarded(group.title):
            found[names[group.key]] = _Place(group, lines_of(group), view.library.board(group))
    return found


@st.cache_resource(show_spinner="Reading score histograms", max_entries=4)
def _stored(stamp: str, _entries: Sequence[Entry]) -> tuple[list[histograms.Stored], list[str]]:
    return histograms.stored(_entries)


def _passing(view: View, names: Mapping[Source, str]) -> dict[str, Source]:
    """The sources that pass the filters, by name; stops the page where there are none."""
    found = {name: source for source, name in names.items() if not view.methods or source.method in view.methods}
    if names and not found:
        st.info(f"The filter “Show methods” hides all thresholds here: {plain(', '.join(names.values()), 600)}.")
        st.stop()
    if not found:
        st.info("No run here has a threshold without the question in view. Make one, then reload this page:")
        st.code("kvprune run --method kvzap --removed 0.25,0.5,0.75,0.875", language="bash")
        st.stop()
    return found


def _shown(
    places: Mapping[str, _Place],
    stored: Sequence[histograms.Stored],
    names: Mapping[Source, str],
    by_name: Mapping[str, Source],
) -> None:
    left, right = st.columns(2)
    with left:
        chosen = st.selectbox("Scores of", list(by_name), key="scores", bind="query-params")
    with right:
        options = [BENCHMARKS, SUBSETS]
        rows = st.segmented_control("Rows", options, default=BENCHMARKS, key="rows", bind="query-params")
    first = next(iter(by_name.values()))
    source, by_subset = by_name.get(chosen or "", first), rows == SUBSETS
    lines = {name: place.lines for name, place in places.items()}
    boards = {name: place.board for name, place in places.items()}
    with guarded("The thresholds that were run"):
        adaptivity_sections.one_threshold(lines, source, by_subset)
    with guarded("What a threshold would remove"):
        prompts = histograms.prompts_of(stored, {name: place.group for name, place in places.items()}, source)
        key = "tau" if source == first else f"tau-{digest(brief(names[source]))[:6]}"
        adaptivity_sections.any_threshold(prompts, lines, boards, source, by_subset, key)
    with guarded("The fixed budgets"):
        adaptivity_sections.fixed_budgets(boards, source)


if __name__ == "__main__":
    page()
