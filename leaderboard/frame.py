"""What every page shares: the library, the filters in the sidebar (kept in the address), text made safe to show."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from leaderboard.library import Group, Library, Stamp, open_library, stamps

#: folders to read, separated as in PATH; arguments after ``--`` win
RESULTS = "KVPRUNE_RESULTS"
ALL = "all"
#: everything that Streamlit's markdown gives a meaning to
_MARKED = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|$~:&\"'^=])")


@dataclass(frozen=True)
class View:
    """What a page shows: the groups that pass the filters, and the methods chosen (empty: all)."""

    library: Library
    groups: list[Group]
    methods: tuple[str, ...]

    def shows(self, cell: dict[str, Any]) -> bool:
        """Whether a cell's method is chosen; the control always is."""
        return not self.methods or cell["method"] in self.methods or cell["level_kind"] == "none"


def plain(text: object) -> str:
    """``text`` as Streamlit's markdown shows it letter by letter: no link, image, HTML, colour, formula or icon."""
    return _MARKED.sub(r"\\\1", " ".join(str(text).split()))


def results() -> list[Path]:
    """The folders to read: arguments, the environment, or ``results`` in the working directory."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    named = os.environ.get(RESULTS, "")
    return [Path(name) for name in (named.split(os.pathsep) if named else arguments) or ["results"]]


def frame(title: str, about: str, without_runs: bool = False) -> View:
    """The title, the sidebar with its filters, and what passes them. Stops the page where there is nothing to show,
    unless it has something ``without_runs``."""
    st.title(title)
    st.caption(about)
    paths = results()
    library = _library(tuple(paths), stamps(paths))
    view = _filtered(library)
    _broken(library)
    if not view.groups:
        _nothing(library, paths)
        if not without_runs:
            st.stop()
    return view


def pick(view: View, label: str = "Board", key: str = "board") -> Group:
    """One of the groups that pass the filters, by a box whose choice is kept in the address."""
    by_key = {group.key: group for group in view.groups}
    names = _distinct(view.groups)
    chosen = st.selectbox(label, list(by_key), format_func=lambda one: names[one], key=key, bind="query-params")
    return by_key[chosen] if chosen in by_key else view.groups[0]


@st.cache_resource(show_spinner="Reading results", max_entries=4)
def _library(paths: tuple[Path, ...], stamped: tuple[Stamp, ...]) -> Library:
    return open_library(paths)


#: name in the address, label, what a group has for it
FILTERS: Sequence[tuple[str, str, Callable[[Group], Any]]] = (
    ("model", "Model", lambda group: group.part.basis["model"]),
    ("benchmark", "Benchmark", lambda group: group.part.benchmark),
    ("length", "Length in tokens", lambda group: group.part.length),
    ("phase", "Phase", lambda group: group.part.basis["phase"]),
    ("query", "Question in view while pruning", lambda group: group.part.basis["query mode"]),
    ("dtype", "Number type", lambda group: group.part.dtype),
    ("kernel", "Attention kernel", lambda group: group.part.basis["attention kernel"]),
)


def _filtered(library: Library) -> View:
    groups = library.groups
    with st.sidebar:
        for key, label, of in FILTERS:
            options = sorted({str(of(group)) for group in groups})
            chosen = st.selectbox(label, [ALL, *options], key=key, bind="query-params", disabled=len(options) < 2)
            if chosen not in (None, ALL):
                groups = [group for group in groups if str(of(group)) == chosen]
        names = sorted({method for group in library.groups for entry in group.entries for method in entry.methods})
        methods = st.multiselect(
            "Methods", [name for name in names if name != "full"], key="method", bind="query-params", placeholder="all"
        )
    return View(library, groups, tuple(methods))


def _broken(library: Library) -> None:
    if not library.broken:
        return
    count = len(library.broken)
    with st.sidebar.expander(f"{count} folder{'s' * (count > 1)} not shown"):
        st.dataframe(
            [{"folder": one.name[:200], "why": one.reason[:500]} for one in library.broken],
            hide_index=True,
            key="broken",
        )


def _nothing(library: Library, paths: Sequence[Path]) -> None:
    if library.groups:
        st.info("No run passes the filters in the sidebar. Set them back to “all”.")
        return
    where = ", ".join(path.name or str(path) for path in paths)
    st.info(f"No runs in {plain(where)}. Make one, then reload this page:")
    st.code("python -m harness run --method kvzap", language="bash")


def _distinct(groups: Sequence[Group]) -> dict[str, str]:
    """Titles by key; where two are the same, with what tells them apart."""
    titles = [group.title for group in groups]
    names = {}
    for group in groups:
        basis = group.part.basis
        more = f" ({group.part.dtype}, {basis['phase']}, {basis['query mode']}, {group.key})"
        names[group.key] = group.title + (more if titles.count(group.title) > 1 else "")
    return names
