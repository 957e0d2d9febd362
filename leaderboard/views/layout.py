"""What every page shares: the library, the filters in the sidebar (kept in the address), text made safe to show."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from harness.errors import HarnessError
from harness.results.schema import VariantFields
from leaderboard.charts.theme import DARK, LIGHT, Theme
from leaderboard.data.discovery import stamps
from leaderboard.data.library import Group, Library, distinct, open_library
from leaderboard.escaping import brief, plain

LOG = logging.getLogger(__name__)
#: folders to read, separated as in PATH, where the app was given none as arguments after ``--``
RESULTS = "KVPRUNE_RESULTS"
ALL = "all"
#: where the app leaves a run's :class:`View` for the page that it runs next
VIEW = "view of this run"
#: engine -> what its saving is called
SAVINGS = {"compact": "real", "masked": "simulated"}


@dataclass(frozen=True)
class View:
    """What a page shows: the groups that pass the filters; of their cells the methods chosen (empty: all), the query
    mode and the saving."""

    library: Library
    groups: list[Group]
    methods: tuple[str, ...]
    query: str = ALL
    saving: str = ALL

    def shows(self, cell: VariantFields) -> bool:
        """Whether a cell or a line passes the filters; the control always does."""
        if cell.level_kind == "none":
            return True
        return (
            (not self.methods or cell.method in self.methods)
            and self.query in (ALL, cell.query_mode)
            and self.saving in (ALL, SAVINGS.get(cell.engine))
        )


def results() -> list[Path]:
    """The folders to read: the app's arguments, else the environment's, else ``results`` in the working directory."""
    given = [one for one in sys.argv[1:] if not one.startswith("-")] if _is_ours(sys.argv[0]) else []
    named = os.environ.get(RESULTS, "")
    # a folder's own name may hold the mark that separates them
    there = [named] if os.path.isdir(named) else [name for name in named.split(os.pathsep) if name]
    return [Path(name) for name in given or there or ["results"]]


def _is_ours(script: str) -> bool:
    """Whether the arguments of this process are the app's: who tests a page has some of another script."""
    return Path(script).resolve().is_relative_to(Path(__file__).resolve().parents[1])


def sidebar() -> None:
    """Draws the filters, and leaves what passes them for the page. The app does it, before the page: Streamlit takes
    the boxes of a page, and what the address says of them, away with the page."""
    paths = results()
    library = _library(tuple(paths), stamps(paths))
    st.session_state[VIEW] = _filtered(library)
    _broken(library)


def frame(title: str, about: str, without_runs: bool = False) -> View:
    """The title, and what passes the filters. Stops the page where there is nothing to show, unless it has something
    ``without_runs``."""
    st.title(title, anchor=False)
    st.caption(about)
    if VIEW not in st.session_state:  # a page that runs by itself
        sidebar()
    view: View = st.session_state.pop(VIEW)
    if not view.groups:
        _nothing(view.library, results())
        if not without_runs:
            st.stop()
    return view


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """What strangers wrote may be wrong in any way: what breaks in the block is said in its place, and the page goes on
    behind it. The server's log has where it broke."""
    try:
        yield
    except HarnessError as error:
        st.error(f"{plain(what)}: {plain(error, 600)}")
    except Exception as error:
        LOG.warning("%s cannot be shown", brief(what), exc_info=True)
        st.error(f"{plain(what)} cannot be shown: {plain(type(error).__name__)}: {plain(error, 600)}")


def current_theme() -> Theme:
    """That of the reader's browser; light where it is not known."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def pick(view: View, label: str = "Board", key: str = "board") -> Group:
    """One of the groups that pass the filters, by a box whose choice is kept in the address."""
    by_key = {group.key: group for group in view.groups}
    names = {key: brief(name) for key, name in distinct(view.groups, lambda group: group.title).items()}
    chosen = st.selectbox(label, list(by_key), format_func=lambda one: names[one], key=key, bind="query-params")
    return by_key[chosen] if chosen in by_key else view.groups[0]


@st.cache_resource(show_spinner="Reading results", max_entries=4)
def _library(paths: tuple[Path, ...], stamped: str) -> Library:
    return open_library(paths)


class Filter(NamedTuple):
    """A box of the sidebar: its name in the address, its label, and what a group has for it."""

    key: str
    label: str
    of: Callable[[Group], Iterable[Any]]


FILTERS: Sequence[Filter] = (
    Filter("model", "Model", lambda group: [group.part.basis["model"]]),
    Filter("benchmark", "Benchmark", lambda group: [group.part.benchmark]),
    Filter("length", "Length in tokens", lambda group: [group.part.length]),
    Filter("phase", "Phase", lambda group: [group.part.basis["phase"]]),
    Filter(
        "query", "Question in view while pruning", lambda group: [m for part in group.parts for m in part.query_modes]
    ),
    Filter("dtype", "Number type", lambda group: [group.part.dtype]),
    Filter("kernel", "Attention kernel", lambda group: [group.part.basis["attention kernel"]]),
    Filter("saving", "Saving", lambda group: [SAVINGS.get(e, e) for part in group.parts for e in part.engines]),
)
METHODS = "method"


def _filtered(library: Library) -> View:
    groups, chosen, common = library.groups, {}, []
    with st.sidebar:
        for key, label, of in FILTERS:
            values = {brief(value) for group in library.groups for value in of(group) if value is not None}
            options = sorted(values, key=lambda one: (not one.isdigit(), int(one) if one.isdigit() else 0, one))
            if len(options) < 2:
                common += [(label, option) for option in options]
                continue
            picked = st.selectbox(label, [ALL, *options], key=key, bind="query-params")
            chosen[key] = ALL if picked is None else picked
            if chosen[key] != ALL:
                groups = [group for group in groups if chosen[key] in map(brief, of(group))]
        names = [name for name in library.methods if name != "full"]
        methods = st.multiselect("Show methods", names, key=METHODS, bind="query-params", placeholder="all")
        if methods:
            groups = [group for group in groups if any(set(methods) & set(entry.methods) for entry in group.entries)]
        if methods or any(value != ALL for value in chosen.values()):
            st.button("Clear all filters", on_click=_clear, key="clear", width="stretch")
        if common:
            st.caption(
                "The same in all runs: " + " · ".join(f"{_lower(label)} **{plain(v, 60)}**" for label, v in common)
            )
    return View(library, groups, tuple(methods), chosen.get("query", ALL), chosen.get("saving", ALL))


def _lower(label: str) -> str:
    return label[0].lower() + label[1:]


def _clear() -> None:
    for one in FILTERS:
        if one.key in st.session_state:
            st.session_state[one.key] = ALL
    st.session_state[METHODS] = []


def _broken(library: Library) -> None:
    if not library.broken:
        return
    count = len(library.broken)
    with st.sidebar.expander(f"{count} folder{'s' * (count > 1)} not shown"):
        rows = [{"folder": brief(one.name, 200), "why": brief(one.reason, 500)} for one in library.broken]
        st.dataframe(rows, hide_index=True, key="broken")


def _nothing(library: Library, paths: Sequence[Path]) -> None:
    if library.groups:
        st.info("No run passes the filters in the sidebar. “Clear all filters” sets them back.")
        return
    where = ", ".join(path.name or str(path) for path in paths)
    st.info(f"No runs in {plain(where)}. Make one, then reload this page:")
    st.code("kvprune run --method kvzap", language="bash")
