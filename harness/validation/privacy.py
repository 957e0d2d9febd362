"""What must not be published: texts of others, paths of a machine, secrets, addresses, markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from benchmarks.base import Benchmark
from harness.results.safe_text import quoted
from harness.results.schema import Item
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

#: what a benchmark or a model wrote; in here paths and addresses are looked at, and may stay
TEXTS = ("prediction", "context", "question", "answer_prefix", "references", "all_classes", "tokens")
SHIPPED = ("context", "question", "answer_prefix")
#: names: they become parts of tables, links and file names
NAMES = ("sample_id", "context_id", "benchmark", "subset", "variant", "method", "budget", "model", "dtype", "device")
MOST_NAME = 300

# each starts at few places and scans what follows once: a stranger's text is megabytes, and made to be slow
SECRETS = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bxox[abprs]-[\w-]{10,}|\bnvapi-[\w-]{20,}|(?<![\w-])ey[JK][\w-]{10,}\.ey[\w-]{10,}\."
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|(?i:\bauthorization\s*[:=]\s*\S)|(?i:\bbearer\s+[\w.~+/-]{16,})"
    r"|(?i:aws_secret_access_key|api[_-]?key|secret[_-]?key|password)\s*[=:]\s*\S{8,}|://[^\s/@:]+:[^\s/@]+@"
)
PATHS = re.compile(
    r"(?<![\w.:/~-])(?:/(?:home|Users|root|tmp|var|mnt|opt|etc|usr|srv|media|work|workspace|workdir|data|content|scratch|"
    r"private|proc|dev|nfs|gpfs|lustre|kaggle|Volumes)/[\w.~-])"
    r"|(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}\w|\\\\[\w.-]+\\\w|\bfile:/|(?<![\w~])~[\w-]*/[\w.]"
)
MAILS = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
MARKUP = re.compile(
    r"<[\s/!]{0,9}(?:script|img|svg|iframe|object|embed|link|meta|style|html|body|head|form|input|button|video|audio|base|"
    r"math|table|div|span|details|template|a|b|i|p|br|h[1-6]|--)(?=[\s/>!-]|$)|\bjavascript\s*:|\bon[a-z]{3,}\s*=\s*[\"'\w(]"
    r"|&#\w+;|\bdata:text/html",
    re.IGNORECASE,
)
ODD_NAME = re.compile(r"[<>\\\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]|(?:^|/)\.\.?(?:/|$)|^/|//")
ANY = re.compile("|".join(f"(?:{part.pattern})" for part in (SECRETS, PATHS, MAILS)))
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_shareable(run: Submission) -> Iterator[Finding]:
    """Texts and references of benchmarks that a run may not redistribute."""
    for number, item in run.items:
        if told := _not_shareable(run.benchmark(item.benchmark), item):
            yield finding("not-shareable", "items.jsonl", number, told)


def _not_shareable(benchmark: Benchmark | None, item: Item) -> str:
    if benchmark is not None and benchmark.shareable:
        return ""
    texts = [name for name in SHIPPED if item.holds(name)]
    if texts:
        return f"has the {', '.join(texts)} of {quoted(item.benchmark)}"
    if benchmark is not None and item.subset in benchmark.needs_data and item.references:
        subset, name = quoted(item.subset), quoted(item.benchmark)
        return f"has the references of {subset} of {name}, which come from data of others"
    return ""


def check_texts(run: Submission) -> Iterator[Finding]:
    """Paths, secrets, addresses and markup in every text of every file, keys included."""
    for name, loaded in run.loaded.items():
        for number, value in loaded.rows or ():
            yield from of_value(name, number, value)


def of_value(file: str, line: int | None, value: dict[str, Any]) -> Iterator[Finding]:
    """Of one JSON object of a file."""
    texts = list(_strings(value, ""))
    names = [(field, text) for field, text in texts if field not in TEXTS]
    joined = "\n".join(text for _, text in names)
    suspicious = any(pattern.search(joined) for pattern in (ANY, MARKUP, CONTROL))
    for field, text in names:
        if suspicious:
            yield from _of_name(file, line, field, text)
        if field in NAMES and (len(text) > MOST_NAME or ODD_NAME.search(text)):
            yield finding("bad-name", file, line, f"{quoted(field)} is {quoted(text)}")
    given = [text for field, text in texts if field in TEXTS]
    if ANY.search("\n".join(given)):
        for text in given:
            yield from _private(file, line, "a text", text, "text-")


def _of_name(file: str, line: int | None, field: str, text: str) -> Iterator[Finding]:
    where = quoted(field) if field else "it"
    yield from _private(file, line, where, text, "")
    if found := MARKUP.search(text):
        yield finding("markup", file, line, f"{where} contains markup, {_excerpt(found)}")
    elif CONTROL.search(text):
        yield finding("markup", file, line, f"{where} contains control characters, {quoted(text)}")


def _private(file: str, line: int | None, where: str, text: str, kind: str) -> Iterator[Finding]:
    if SECRETS.search(text):  # which is not repeated
        yield finding("secret", file, line, f"{where} contains what looks like a key, a token or a password")
    if found := PATHS.search(text):
        yield finding(f"{kind}path", file, line, f"{where} contains a path of a machine, {_excerpt(found)}")
    if found := MAILS.search(text):
        yield finding(f"{kind}e-mail", file, line, f"{where} contains an e-mail address, {_excerpt(found)}")


def _excerpt(found: re.Match[str]) -> str:
    return quoted(found.string[found.start() : found.end() + 20])


def _strings(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Every text with the field that holds it; of a list or an object without a field of its own, the outer one's."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, field)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield "", key
            yield from _strings(one, field if field in TEXTS else key)
