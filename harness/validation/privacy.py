"""What must not be published: texts of others, paths of a machine, secrets, addresses, markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harness.safe_text import quoted
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


def check_shareable(folder: Submission) -> Iterator[Finding]:
    """Texts and references of benchmarks that a run may not ship."""
    for number, row in folder.items:
        told = _not_shareable(folder, row)
        if told:
            yield finding("not-shareable", "items.jsonl", number, told)


def _not_shareable(folder: Submission, row: dict[str, Any]) -> str:
    benchmark = folder.benchmark(row["benchmark"])
    if benchmark is not None and benchmark.shareable:
        return ""
    texts = [name for name in SHIPPED if name in row]
    if texts:
        return f"has the {', '.join(texts)} of {quoted(row['benchmark'])}"
    if benchmark is not None and row["subset"] in benchmark.needs_data and row.get("references"):
        subset, name = quoted(row["subset"]), quoted(row["benchmark"])
        return f"has the references of {subset} of {name}, which come from data of others"
    return ""


def check_texts(folder: Submission) -> Iterator[Finding]:
    """Paths, secrets, addresses and markup in every text of every file, keys included."""
    for name, loaded in folder.loaded.items():
        if loaded.rows:
            for number, row in loaded.rows:
                yield from of_value(name, number, row)
        elif isinstance(loaded.value, dict):
            yield from of_value(name, None, loaded.value)


def of_value(file: str, line: int | None, value: dict[str, Any]) -> Iterator[Finding]:
    """Of one JSON object of a file."""
    plain = [(field, text) for field, text in _strings(value, "") if field not in TEXTS]
    given = [text for field, text in _strings(value, "") if field in TEXTS]
    joined = "\n".join(text for _, text in plain)
    if ANY.search(joined) or MARKUP.search(joined) or CONTROL.search(joined):
        for field, text in plain:
            yield from _of_name(file, line, field, text)
    for field, text in plain:
        if field in NAMES and (len(text) > MOST_NAME or ODD_NAME.search(text)):
            yield finding("bad-name", file, line, f"{quoted(field)} is {quoted(text)}")
    if ANY.search("\n".join(given)):
        for text in given:
            yield from _of_text(file, line, text)


def _of_name(file: str, line: int | None, field: str, text: str) -> Iterator[Finding]:
    where = quoted(field) if field else "it"
    if SECRETS.search(text):
        yield finding("secret", file, line, f"{where} holds what looks like a key, a token or a password")
    for code, pattern, what in (("path", PATHS, "a path of a machine"), ("e-mail", MAILS, "an e-mail address")):
        if found := pattern.search(text):
            yield finding(code, file, line, f"{where} holds {what}, {quoted(text[found.start() : found.end() + 20])}")
    if found := MARKUP.search(text):
        yield finding("markup", file, line, f"{where} holds markup, {quoted(text[found.start() : found.end() + 20])}")
    elif CONTROL.search(text):
        yield finding("markup", file, line, f"{where} holds control characters, {quoted(text)}")


def _of_text(file: str, line: int | None, text: str) -> Iterator[Finding]:
    if SECRETS.search(text):
        yield finding("secret", file, line, "a text holds what looks like a key, a token or a password")
    for code, pattern, what in (("text-path", PATHS, "a path"), ("text-e-mail", MAILS, "an e-mail address")):
        if found := pattern.search(text):
            yield finding(code, file, line, f"a text holds {what}, {quoted(text[found.start() : found.end() + 20])}")


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
