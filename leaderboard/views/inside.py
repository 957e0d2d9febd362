"""The page "Look inside": chooses run, variants and sample, and shows tokens, heads, answers and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from harness.analysis.run_reader import Reading
from harness.results.safe_text import clean
from harness.results.schema import Line
from leaderboard.charts.tokens import BESIDE, MOST_TOKENS, WIDTH, head_chart, head_table, token_chart, token_table
from leaderboard.data.library import Group
from leaderboard.data.sample_diff import differing, side_by_side, variants_of
from leaderboard.data.sample_view import SampleView, sample_view, samples_with_masks
from leaderboard.escaping import brief, plain
from leaderboard.views.layout import View, current_theme, frame, guarded, pick

#: letters of an answer or a question that are shown
MOST_LETTERS = 4_000
NOTHING = "none"


def page() -> None:
    view = frame("Look inside", "One sample: what each variant kept of its context, and what it answered.")
    with guarded("This sample"):  # a file may have broken since the library was read, or lack what a summary has not
        _page(view)


def _page(view: View) -> None:
    left, right = st.columns(2)
    with left:
        group = pick(view)
    with right:
        run = _run(group)
    lines = [ln for ln in run.lines if (ln.benchmark, ln.length) == (group.part.benchmark, group.part.length)]
    control, chosen = _variants(view, lines)
    if not chosen:
        st.info("No pruned variant of this run passes the filters in the sidebar.")
        return
    against = chosen[1] if len(chosen) > 1 else control
    masked = {place.sample_id for place in samples_with_masks(run)}
    sample = _sample(lines, masked)
    own = [line for line in lines if line.sample_id == sample]
    shown = list(dict.fromkeys([*([control] if control else []), *chosen]))
    with guarded("The answers"):
        _asked(run, sample)
        _answers(own, shown)
    with guarded("What was kept"):
        _masks(run, sample, masked, [label for label in chosen if any(line.variant == label for line in own)])
    if against is not None:
        with guarded("The differences"):
            _differences(lines, against, chosen[0], masked)


def _run(group: Group) -> Reading:
    """One of the board's runs; those with masks first."""
    readings = sorted((entry.reading for entry in group.entries), key=lambda run: not _has_masks(run))
    names = [f"{brief(run.name, 120)}{'' if _has_masks(run) else ' (no masks)'}" for run in readings]
    labels = [f"{name} [{n}]" if names.count(name) > 1 else name for n, name in enumerate(names)]
    picked = st.selectbox("Run", labels, key="run", bind="query-params")
    return readings[labels.index(picked)] if picked in labels else readings[0]


def _has_masks(run: Reading) -> bool:
    return (run.folder.path / "masks").is_dir()


def _variants(view: View, lines: Sequence[Line]) -> tuple[str | None, list[str]]:
    """The control, and one or two pruned variants by two boxes."""
    control, pruned = variants_of(lines)
    passing = {line.variant for line in lines if view.shows(line)}
    pruned = [label for label in pruned if label in passing]
    if not pruned:
        return control, []
    left, right = st.columns(2)
    with left:
        one = st.selectbox("Variant", pruned, key="one", bind="query-params", format_func=brief)
    others = [NOTHING, *pruned]
    with right:
        other = st.selectbox("Beside it", others, key="other", bind="query-params", format_func=brief)
    first = one if one in pruned else pruned[0]
    return control, [first] if other in (None, NOTHING, first) or other not in pruned else [first, other]


def _sample(lines: Sequence[Line], masked: set[str]) -> str:
    """One of the samples; those with masks first."""
    samples = sorted(dict.fromkeys(line.sample_id for line in lines), key=lambda sample: sample not in masked)
    picked = st.selectbox(
        "Sample",
        samples,
        key="sample",
        bind="query-params",
        format_func=lambda sample: brief(sample) + (" · masks stored" if sample in masked else ""),
    )
    return picked if picked in samples else samples[0]


def _asked(run: Reading, sample: str) -> None:
    """Question and references, where the run stores them."""
    item = run.items.get(sample)
    if item and item.references:
        st.markdown("**Right answers**")
        _letters("  |  ".join(brief(one, 500) for one in item.references[:20]))
    if item and item.question.strip():
        st.markdown("**Question**")
        _letters(item.question + item.answer_prefix)


def _answers(own: Sequence[Line], shown: Sequence[str]) -> None:
    st.subheader("Answers", anchor=False)
    for column, label in zip(st.columns(len(shown)), shown, strict=True):
        with column:
            st.markdown(f"**{plain(label)}**")
            lines = [line for line in own if line.variant == label]
            if not lines:
                st.caption("no line of this sample")
            for line in lines:
                score = "no score" if line.score is None else f"score {line.score:g}"
                removed = "" if line.removed_context is None else f", {line.removed_context:.1%} of the context removed"
                rollout = f"answer {line.rollout + 1}: " if len(lines) > 1 else ""
                st.caption(
                    plain(f"{rollout}{score}{removed}, {line.status}{': ' + line.reason if line.reason else ''}")
                )
                _letters(line.prediction if line.prediction is not None else "no answer is stored")


def _letters(text: str) -> None:
    """A text as it is, letter by letter."""
    text = str(clean(text[:MOST_LETTERS])) + ("…" if len(text) > MOST_LETTERS else "")
    st.code(text, language=None, wrap_lines=True)


def _masks(run: Reading, sample: str, masked: set[str], labels: Sequence[str]) -> None:
    st.subheader("What was kept", anchor=False)
    if sample not in masked:
        some = "this sample" if masked else "this run"
        st.info(
            f"No masks of {some} are stored. The run's own command with one more flag stores those of the first N "
            "samples per subset; answers that are there are not recomputed:"
        )
        st.code("kvprune run ... --store-masks 5", language="bash")
        return
    view = sample_view(run, sample)
    if view.tokens is None:
        st.info(f"{plain(view.tokens_note, 600)} Cells are positions in the context.")
    if view.cut:
        st.caption(f"{view.cut:,} tokens were left out of the middle of the context, since the prompt was too long.")
    start = _start(view)
    st.caption(
        "The stronger a token, the more heads kept it: underlined by all of them, struck through by none. "
        f"The first {view.prefix:,} are the chat template's. Hover for the figure."
    )
    for column, label in zip(st.columns(len(labels)), labels, strict=True):
        with column:
            _kept(view, label, start, WIDTH if len(labels) == 1 else BESIDE)


def _start(view: SampleView) -> int:
    """The first token shown, of a context that is too long for one view."""
    count = view.shape[2]
    if count <= MOST_TOKENS:
        return 0
    starts = [place * MOST_TOKENS for place in range(math.ceil(count / MOST_TOKENS))]
    picked = st.selectbox(
        "Tokens",
        starts,
        key="tokens",
        bind="query-params",
        format_func=lambda first: f"{first:,} to {min(count, first + MOST_TOKENS) - 1:,} of {count:,}",
    )
    return picked if picked in starts else 0


def _kept(view: SampleView, label: str, start: int, width: int) -> None:
    """One variant's tokens, in lines of ``width`` columns, and heads."""
    st.markdown(f"**{plain(label)}**")
    shown = view.shown(label)
    if not shown.has_mask:
        st.warning("This variant has no mask of the sample; its line says why.")
        return
    if not shown.agrees:
        st.warning("The stored mask keeps another number of pairs than the line says: they are not of one run.")
    tokens = token_table(view.share_by_token(label), view.tokens, view.prefix, start, width)
    st.altair_chart(
        token_chart(tokens, current_theme(), width),
        theme=None,
        width="content",
        key=f"tokens-{label}",
        alt="Tokens by share of heads",
    )
    heads = head_table(view.share_by_head(label))
    st.altair_chart(head_chart(heads), width="content", key=f"heads-{label}", alt="Kept share by layer and head")


def _differences(lines: Sequence[Line], a: str, b: str, masked: set[str]) -> None:
    st.subheader("Where they differ", anchor=False)
    pairs = side_by_side(lines, a, b)
    found = differing(pairs)
    better = sum((pair.change or 0) > 0 for pair in found)
    worse = sum((pair.change or 0) < 0 for pair in found)
    st.caption(
        f"{plain(b)} against {plain(a)}: different scores on {len(found)} of {len(pairs)} samples, {better} better and "
        f"{worse} worse. Choose a row to look at it."
    )
    if not found:
        return
    st.dataframe(
        [
            {
                "sample": brief(pair.sample_id),
                "subset": brief(pair.subset),
                brief(a): pair.a,
                brief(b): pair.b,
                "change": pair.change,
                "masks": pair.sample_id in masked,
            }
            for pair in found
        ],
        hide_index=True,
        column_config={name: st.column_config.NumberColumn(format="%.1f") for name in (brief(a), brief(b), "change")},
        key="differences",
        on_select=lambda: jump([pair.sample_id for pair in found]),
        selection_mode="single-row",
    )


def jump(samples: Sequence[str]) -> None:
    """Show the sample of the row that was chosen."""
    rows = st.session_state["differences"].selection.rows
    if rows and rows[0] < len(samples):
        st.session_state["sample"] = samples[rows[0]]


if __name__ == "__main__":
    page()
