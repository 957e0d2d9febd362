"""Query modes: whether the question, which question, is in view when a context with several questions is pruned.

agnostic       once, on the context alone; all questions are asked of what is left
aware          again for each question, with it in view
aware-reused   with the first question in view; the others are asked through the mask made for it

In all of them the full cache comes from one prefill, only context pairs are masked, and each question starts at T.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.base import Benchmark
from harness.config.run_config import AGNOSTIC
from harness.errors import HarnessError
from methods.base import Method


def resolve(asked: Sequence[str], query_aware: bool, wanted: Sequence[Benchmark]) -> tuple[str, ...]:
    """The modes of a run; empty where its benchmarks ask one question of a context, which ``--query-aware`` is for.

    Raises :class:`HarnessError` where the flags do not go together with each other or with the benchmarks.
    """
    several = [benchmark.name for benchmark in wanted if benchmark.query_modes]
    single = [benchmark.name for benchmark in wanted if not benchmark.query_modes]
    if query_aware and (asked or several):
        what = f"--query-mode {','.join(asked)}" if asked else f"--benchmark {','.join(several)}"
        raise HarnessError(
            f"--query-aware prunes the question together with its context, {what} prunes the context alone and asks "
            f"each question after it; leave --query-aware out{'' if asked else ' and give --query-mode aware'}"
        )
    if single and set(asked) - {AGNOSTIC}:
        raise HarnessError(
            f"--query-mode {','.join(asked)} is for benchmarks with several questions on a context; "
            f"{', '.join(single)} asks one: use --query-aware, or --benchmark multi-question"
        )
    if single and several and not asked:
        raise HarnessError(
            f"{', '.join(several)} compares query modes and {', '.join(single)} has none; run them apart, or give "
            "--query-mode agnostic"
        )
    if not several:
        return ()
    return tuple(asked) or tuple(dict.fromkeys(mode for benchmark in wanted for mode in benchmark.query_modes))


def refusal(method: Method, mode: str, phase: str) -> str:
    """Why a method cannot prune in a mode; empty where it can."""
    if mode == AGNOSTIC:
        return ""
    if type(method).passes is not Method.passes:
        return (
            f"{method.name} scores the context in passes of its own, whatever is asked of it later: it is "
            "query-agnostic by construction; its row is the agnostic one"
        )
    if phase != "prefill":
        return f"query mode {mode} is for phase prefill; while decoding every method has seen the question"
    if method.compat:
        return f"NVIDIA/kvpress prunes the question with the context and has no query mode {mode}; use --query-aware"
    return ""
