"""The configuration of a run: flags over a YAML file over defaults, each value checked, one message for a mistake."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from harness.config.run_config import RunConfig, read
from harness.config.tool_configs import AgreementConfig, SweepConfig
from harness.errors import HarnessError


def from_yaml(folder: Path, text: str, **flags: Any) -> RunConfig:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return read(path, flags)


def test_nothing_given_means_the_defaults(tmp_path: Path) -> None:
    config = read(None, {})
    assert config == RunConfig() == RunConfig(limit=None, phase=None)
    assert (config.method, config.benchmark, config.model) == (("kvzap",), ("needles",), "smollm2-135m")
    assert (config.seed, config.limit, config.phase, config.out) == (0, None, None, Path("results"))
    for text in ("", "method:\nlimit:\ncompat:\nout: ~", "resume: false\nforce: false"):
        assert from_yaml(tmp_path, text) == config


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
        thinking: on
    """
    config = from_yaml(tmp_path, text)
    assert config == RunConfig(
        method=("knorm", "kvzip"),
        removed=Decimal("0.5"),
        threshold=[-6.0, -math.inf],
        keep_tokens="128,512",
        window="3",
        option="kvzip.chunk=64",
        query_aware=True,
        length=[1024],
        limit="5",
        model="some/model",
        data=Path("rows.jsonl"),
        plugin="mine.py",
        thinking="on",
    )
    assert (config.removed, config.threshold, config.keep_tokens) == ((Decimal("0.5"),), (-6.0, -math.inf), (128, 512))
    assert (config.window, config.length, config.limit) == ((3,), (1024,), 5)
    assert (config.plugin, config.thinking) == ((Path("mine.py"),), "on")


def test_flags_override_the_file(tmp_path: Path) -> None:
    config = from_yaml(tmp_path, "method: knorm\nremoved: 0.5\nlimit: 7", removed=["0.25"], limit="2")
    assert (config.method, config.removed, config.limit) == (("knorm",), (Decimal("0.25"),), 2)


def test_an_unknown_key_names_the_nearest_first(tmp_path: Path) -> None:
    for make in (lambda: from_yaml(tmp_path, "remove: 0.5"), lambda: RunConfig(remove=0.5)):
        with pytest.raises(HarnessError, match="unknown key 'remove'; known, nearest first: removed"):
            make()


@pytest.mark.parametrize("text", ["- knorm", "just words", "method: [knorm", "3", "\x00"])
def test_a_file_without_keys_and_values_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(HarnessError, match=r"--config .*run\.yaml"):
        from_yaml(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"method: \xff\xfe")
    for path, text in (
        (tmp_path / "missing.yaml", "cannot be read: .*; it must hold keys and values"),
        (tmp_path, "cannot be read: .*; it must hold keys and values"),
        (binary, "is (no|not) UTF-8 text"),
    ):
        with pytest.raises(HarnessError, match=f"--config {path} {text}"):
            read(path, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method: knorm\n\tremoved: 0.5", "YAML in line 2: "),
        ("method: knorm\nremoved: [0.5", "YAML in line 2: "),
        ("--- 1\n--- 2", "YAML in line 2: expected a single document"),
        ("method: !!python/object:os.system x", "YAML in line 1: could not determine a constructor"),
        ("removed: 0.5\nlimit: 1\nremoved: 0.75", "has the key removed twice, the second time in line 3"),
        ("keep-tokens: 8\nkeep_tokens: 9", "has the key keep_tokens twice, once with - and once with _"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nmodel: *b", r"has the alias \*a in line 2; write"),
        ("a: &a {limit: 1}\n<<: *a", r"has the alias \*a in line 2"),
        ("model: " + "[" * 9999, "is nested too deeply"),
        ("model: 2020-02-31", "has a value that cannot be read .*put it in quotes"),
        ("model: !!timestamp x", "has a value that cannot be read"),
        ("limit: " + "9" * 5000, "has a value that cannot be read"),
        ("method: {knorm: 1}", "method takes a value, or a list of values that hold nothing more"),
        ("method: [[knorm, kvzip], random]", "method takes a value, or a list of values that hold nothing more"),
        ("option: {kvzip.chunk: 64}", "option takes a value, or a list of values"),
        ("removed: yes", "--removed must be a number, at least 0 and less than 1, got 'True'"),
        ("threshold: .nan", "--threshold must be a number"),
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


@pytest.mark.parametrize("value", ["a,b", ["a", "b"], ("a,b",), " a , b ,", ["a", "b", "a"]])
def test_lists_are_given_with_commas_or_by_repetition(value: Any) -> None:
    assert RunConfig(method=value).method == ("a", "b")


def test_fractions_are_exact_and_thresholds_may_be_infinite() -> None:
    assert [str(one) for one in RunConfig(removed="0,-0,0.875,1e-3").removed] == ["0", "0.875", "0.001"]
    assert RunConfig(threshold="-inf,inf").threshold == (-math.inf, math.inf)


def test_repeated_values_count_once() -> None:
    config = RunConfig(removed=["0.5,0.50", "0.25"], length="256,256", subset="x,x", window="0", sinks=0)
    assert config.removed == (Decimal("0.5"), Decimal("0.25"))
    assert (config.length, config.subset, config.window, config.sinks) == ((256,), ("x",), (0,), (0,))


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
    assert RunConfig(option=value).option == found


COUNTS = {"keep_tokens": 1, "window": 0, "sinks": 0, "length": 1, "limit": 1, "seed": 0, "rollouts": 1}
COUNTS |= {"max_new_tokens": 1, "store_masks": 0}
WRONG = [
    *(
        (names, value, "was given without a value")
        for names in ("method budget removed threshold keep_tokens window sinks length query_mode plugin",)
        for value in ("", ",", [" "], [])
    ),
    *(
        ("model device dtype out data reference", value, r"takes one text, got")
        for value in ("", "  ", ["a", "b"], 7, "a\0b")
    ),
    *(
        (name, value, f"must be a whole number from {least} to 1000000000000, got '{value}'")
        for name, least in COUNTS.items()
        for value in ("-1", "two", "1.5", "1e3", "nan", "9" * 5000, str(10**12 + 1), *["0"] * least)
    ),
    *(
        ("removed", value, f"must be a number, at least 0 and less than 1, got '.*{value[-3:]}'")
        for value in ("1", "1.0", "-0.1", "abc", "1e999", "0.5,1.5", "nan", "inf", "0.999999999999999999999")
    ),
    *(
        ("threshold", value, f"must be a number such as -4 or -5.5, got '.*{value[-3:]}'")
        for value in ("nan", "-nan", "-4,nan", "tau", "--4")
    ),
    *(("resume force query_aware", value, "must be true or false, got") for value in ("false", 0, [True])),
    ("compat", "paper", "must be kvpress, got 'paper'"),
    ("thinking", "maybe", "must be on, off or auto, got 'maybe'"),
    ("phase", "later", "must be prefill, decode or both, got 'later'"),
    ("query_mode", "agnostic,blind", "must be agnostic, aware or aware-reused, got 'blind'"),
]


@pytest.mark.parametrize(("names", "value", "message"), WRONG)
def test_a_bad_value_says_what_the_flag_may_be(names: str, value: Any, message: str) -> None:
    for name in names.split():
        with pytest.raises(HarnessError, match=f"^--{name.replace('_', '-')} {message}"):
            RunConfig(**{name: value})


def test_resume_and_force_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"^--resume and --force exclude each other"):
        from_yaml(tmp_path, "resume: true", force=True)


def test_all_commands_check_a_flag_alike() -> None:
    for config, name in ((AgreementConfig, "limit"), (SweepConfig, "new_tokens"), (RunConfig, "limit")):
        with pytest.raises(HarnessError, match=f"^--{name.replace('_', '-')} must be a whole number from 1 .*got '0'"):
            config(**{name: "0"})
    assert SweepConfig(length="64,128").length == (64, 128)
