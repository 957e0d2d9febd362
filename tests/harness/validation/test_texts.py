"""What ``validate`` knows of single texts and of JSON: what may be private, marks up, or no run writes."""

from __future__ import annotations

import json

import pytest

from harness.validation import json_reader, privacy


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("/home/a/b", "PATHS"),
        ("weights=/mnt/models/x", "PATHS"),
        ("'/scratch/x'", "PATHS"),
        ("see ~/models/x", "PATHS"),
        ("D:\\models", "PATHS"),
        ("file:///x", "PATHS"),
        ("hf_" + "a1B2" * 8, "SECRETS"),
        ("https://me:pass@host/x", "SECRETS"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", "SECRETS"),
        ("password=correcthorse", "SECRETS"),
        ("a.b+c@example.co.uk", "MAILS"),
        ("</script >", "MARKUP"),
        ("<svg/onload=x>", "MARKUP"),
        ("JaVaScRiPt:x", "MARKUP"),
        ("../x", "ODD_NAME"),
        ("a/../b", "ODD_NAME"),
        ("/a", "ODD_NAME"),
        ("a\\b", "ODD_NAME"),
    ],
)
def test_private_and_odd_texts_are_known(text: str, code: str) -> None:
    assert getattr(privacy, code).search(text)


@pytest.mark.parametrize(
    "text",
    [
        "kvzap_mlp threshold tau=-4.3662",
        "needles/keys_1/1024/0/0",
        "Qwen/Qwen3-8B",
        "fidelity:needles:repeat",
        "expected float32 [3, 4], got <class 'torch.Tensor'>",
        "CPU, 1 threads",
        "kvprune masked (torch)",
        "x < y and a > b",
        "pretext=mine@1a2b3c4d",
        "10 pairs/data/s",
        "task-skeleton-of-a-long-name",
        '{"chunk": 2048, "lead_in": 8, "pretext": "repeat"}',
    ],
)
def test_plain_texts_are_let_through(text: str) -> None:
    for pattern in (privacy.PATHS, privacy.SECRETS, privacy.MAILS, privacy.MARKUP):
        assert not pattern.search(text)


SLOW = ["a.", "<", "<  ", "< " + " " * 999, "eyJ-", "://a:", "password ", "~a", "\\\\a", "onabc ", "&#", "a@b."]


@pytest.mark.parametrize("part", SLOW)
def test_texts_made_to_be_slow_end(part: str) -> None:
    text = part * (100_000 // len(part))  # minutes, were a pattern to scan all of it from each place anew
    for pattern in (privacy.SECRETS, privacy.PATHS, privacy.MAILS, privacy.MARKUP):
        assert not pattern.search(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[NaN]", "not-finite"),
        ("[-Infinity]", "not-finite"),
        ("[1e400]", "huge-number"),
        (f"[{2**53 + 1}]", "huge-number"),
        ('{"a": 1, "a": 1}', "duplicate-key"),
        ("[" * 17 + "]" * 17, "nesting"),
        ('["\\udc00"]', "surrogate"),
        ('{"\\ud83d": 1}', "surrogate"),
        ("[1,]", "not-json"),
        ("", "not-json"),
    ],
)
def test_json_that_no_run_writes_is_refused(text: str, code: str) -> None:
    with pytest.raises(json_reader.Refused) as refused:
        json_reader.parse(text)
    assert refused.value.code == code


def test_json_that_a_run_may_write_is_taken() -> None:
    value = {"a": [1.5e-300, -(2**53), None, True, "\U0001f600 \u2028"], "b": {"c": {}}}
    assert json_reader.parse(json.dumps(value)) == value
    assert json_reader.parse("[" * 16 + "]" * 16)
