"""Requests: flags over a YAML file over defaults, each value checked."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from harness.config.run_config import RunRequest, build, counts
from harness.errors import HarnessError


def from_yaml(folder: Path, text: str, **flags: Any) -> RunRequest:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return build(flags, path)


def test_nothing_given_means_the_defaults() -> None:
    asked = build({})
    assert asked == RunRequest()
    assert (asked.method, asked.benchmark, asked.model) == (("kvzap",), ("needles",), "smollm2-135m")
    assert (asked.seed, asked.limit, asked.phase, asked.out) == (0, None, "prefill", Path("results"))


def test_yaml_keys_are_the_flags_names(tmp_path: Path) -> None:
    text = """
        method: [knorm, kvzip]
        removed: 0.5
        threshold: [-6, -.inf]
        keep-tokens: [128, 512]
        window: 3
        option: kvzip.chunk=64
        query-aware: true
        length: 1024
        limit: 5
        model: some/model
        data: rows.jsonl
        plugin: mine.py
    """
    asked = from_yaml(tmp_path, text)
    assert asked.method == ("knorm", "kvzip")
    assert asked.removed == (Decimal("0.5"),)
    assert asked.threshold == (-6.0, -math.inf)
    assert asked.keep_tokens == (128, 512)
    assert (asked.window, asked.option, asked.query_aware) == ((3,), ("kvzip.chunk=64",), True)
    assert (asked.length, asked.limit, asked.model) == ((1024,), 5, "some/model")
    assert (asked.data, asked.plugin) == (Path("rows.jsonl"), (Path("mine.py"),))


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    asked = from_yaml(tmp_path, "method: knorm\nremoved: 0.5\nlimit: 7", removed=["0.25"], limit="2")
    assert (asked.method, asked.removed, asked.limit) == (("knorm",), (Decimal("0.25"),), 2)


def test_an_empty_file_and_empty_keys_mean_the_defaults(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, "") == RunRequest()
    assert from_yaml(tmp_path, "method:\nlimit:\ncompat:\nout: ~") == RunRequest()


def test_an_unknown_key_names_the_nearest_first(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="unknown key 'remove'; known, nearest first: removed"):
        from_yaml(tmp_path, "remove: 0.5")


@pytest.mark.parametrize("text", ["- knorm", "just words", "method: [knorm", "3", "\x00"])
def test_a_file_without_keys_and_values_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(HarnessError, match=r"--config .*run\.yaml"):
        from_yaml(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"method: \xff\xfe")
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(HarnessError, match=f"--config {path} cannot be read: .*; it must hold keys and values"):
            build({}, path)
    with pytest.raises(HarnessError, match=f"--config {binary} is no UTF-8 text"):
        build({}, binary)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method: knorm\n\tremoved: 0.5", "is no YAML in line 2: "),
        ("method: knorm\nremoved: [0.5", "is no YAML in line 2: "),
        ("--- 1\n--- 2", "is no YAML in line 2: expected a single document"),
        ("method: !!python/object:os.system x", "is no YAML in line 1: could not determine a constructor"),
        ("removed: 0.5\nlimit: 1\nremoved: 0.75", "has the key removed twice, the second time in line 3"),
        ("keep-tokens: 8\nkeep_tokens: 9", "has the key keep_tokens twice, once with - and once with _"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nmodel: *b", r"has the alias \*a in line 2; write out"),
        ("a: &a {limit: 1}\n<<: *a", r"has the alias \*a in line 2"),
        ("model: " + "[" * 9999, "is nested too deeply"),
        ("model: 2020-02-31", "has a value that cannot be read .*put it in quotes"),
        ("model: !!timestamp x", "has a value that cannot be read"),
        ("limit: " + "9" * 5000, "has a value that cannot be read"),
        ("method: {knorm: 1}", "method takes a value, or a list of values that hold nothing more"),
        ("method: [[knorm, kvzip], random]", "method takes a value, or a list of values that hold nothing more"),
        ("option: {kvzip.chunk: 64}", "option takes a value, or a list of values"),
        ("removed: yes", "--removed must be a number, at least 0 and less than 1, got 'True'"),
        ("limit: yes", "--limit must be a whole number from 1 .*got True"),
        ("model: 2020-02-03", "--model takes one text, got datetime.date"),
        ('out: "a\\0b"', "--out takes one text"),
        ("yes: 1", "unknown key 'True'"),
    ],
)
def test_what_yaml_makes_of_a_slip_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message) as error:
        from_yaml(tmp_path, text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_an_anchor_alone_is_harmless(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, "\ufeffmethod: &m knorm\r\nlimit: 3\r\n").limit == 3


@pytest.mark.parametrize("value", ["a,b", ["a", "b"], ["a,b"], " a , b ,", ["a", "b", "a"]])
def test_lists_are_given_with_commas_or_by_repetition(value: Any) -> None:
    assert build({"method": value}).method == ("a", "b")


def test_repeated_values_count_once() -> None:
    asked = build({"removed": ["0.5,0.50", "0.25"], "length": "256,256", "subset": "x,x"})
    assert asked.removed == (Decimal("0.5"), Decimal("0.25"))
    assert (asked.length, asked.subset) == ((256,), ("x",))


@pytest.mark.parametrize(
    "name", ["method", "budget", "removed", "threshold", "keep_tokens", "window", "sinks", "length"]
)
@pytest.mark.parametrize("value", ["", ",", [" "], []])
def test_a_list_flag_without_a_value_is_refused(name: str, value: Any) -> None:
    with pytest.raises(HarnessError, match=f"--{name.replace('_', '-')} was given without a value"):
        build({name: value})


@pytest.mark.parametrize("name", ["model", "device", "dtype", "phase", "out", "data"])
@pytest.mark.parametrize("value", ["", "  ", ["a", "b"], 7])
def test_a_text_flag_takes_one_text(name: str, value: Any) -> None:
    with pytest.raises(HarnessError, match=f"--{name} takes one text, got"):
        build({name: value})


@pytest.mark.parametrize(
    ("name", "least"), [("keep_tokens", 1), ("window", 0), ("sinks", 0), ("length", 1), ("limit", 1), ("seed", 0)]
)
@pytest.mark.parametrize("value", ["-1", "two", "1.5", "1e3", "nan", "9" * 5000, str(10**12 + 1)])
def test_a_count_says_what_it_may_be(name: str, least: int, value: str) -> None:
    flag = name.replace("_", "-")
    with pytest.raises(
        HarnessError, match=f"--{flag} must be a whole number from {least} to 1000000000000, got '{value}'"
    ):
        build({name: value})


@pytest.mark.parametrize("name", ["keep_tokens", "length", "limit"])
def test_none_of_something_is_refused(name: str) -> None:
    with pytest.raises(HarnessError, match="from 1 to"):
        build({name: "0"})


@pytest.mark.parametrize("name", ["window", "sinks"])
def test_no_protection_may_be_asked_for(name: str) -> None:
    assert getattr(build({name: "0"}), name) == (0,)


@pytest.mark.parametrize("value", ["1", "-0.1", "abc", "1e999", "0.5,1.5", "nan"])
def test_a_removed_fraction_says_what_it_may_be(value: str) -> None:
    with pytest.raises(HarnessError, match=r"--removed must be .*at least 0 and less than 1, got .*" + value[-3:]):
        build({"removed": value})


@pytest.mark.parametrize("value", ["nan", "-4,nan", "tau"])
def test_a_threshold_says_what_it_may_be(value: str) -> None:
    with pytest.raises(HarnessError, match=f"--threshold must be a number such as -4 or -5.5, got '{value[-3:]}'"):
        build({"threshold": value})


def test_a_yaml_nan_is_no_threshold(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="--threshold must be a number"):
        from_yaml(tmp_path, "threshold: .nan")


@pytest.mark.parametrize("name", ["resume", "force", "query-aware"])
@pytest.mark.parametrize("value", ["'false'", "0", "[true]"])
def test_a_switch_is_true_or_false(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(HarnessError, match=f"--{name} must be true or false"):
        from_yaml(tmp_path, f"{name}: {value}")


def test_a_switch_may_be_off(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, "resume: false\nforce: false") == RunRequest()


def test_resume_and_force_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="--resume and --force exclude each other"):
        from_yaml(tmp_path, "resume: true", force=True)


@pytest.mark.parametrize("value", ["kvpres", "", "paper"])
def test_compat_knows_one_word(value: str) -> None:
    if value:
        with pytest.raises(HarnessError, match=f"--compat must be kvpress, got '{value}'"):
            build({"compat": value})
    else:
        assert build({"compat": value}).compat == ""


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("a.x=1,a.y=2", ("a.x=1", "a.y=2")),
        ("a.x=1, b.y=2", ("a.x=1", "b.y=2")),
        (["a.x=1", "a.x=2"], ("a.x=1", "a.x=2")),
        ("a.path=x,y", ("a.path=x,y",)),
        ("a.path=/some.folder/x=1", ("a.path=/some.folder/x=1",)),
    ],
)
def test_a_comma_inside_an_options_value_is_left_alone(value: Any, found: tuple[str, ...]) -> None:
    assert build({"option": value}).option == found


def test_counts_of_a_profile_are_checked_like_those_of_a_run() -> None:
    assert counts("length", "64,128") == (64, 128)
    with pytest.raises(HarnessError, match="--new-tokens must be a whole number from 1"):
        counts("new-tokens", ["0"])


def test_the_grid_has_all_that_makes_variants() -> None:
    asked = build({"method": "kvzip", "removed": "0.5", "sinks": "1", "compat": "kvpress", "query_aware": True})
    grid = asked.grid()
    assert (grid.methods, grid.removed, grid.sinks) == (("kvzip",), (Decimal("0.5"),), (1,))
    assert (grid.compat, grid.query_aware, grid.windows, grid.thresholds) == ("kvpress", True, (), ())
