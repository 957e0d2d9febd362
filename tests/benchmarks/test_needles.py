from __future__ import annotations

import random
import re

import pytest

from benchmarks import needles
from benchmarks.base import Request, Sample, Text, content_hash
from benchmarks.registry import get

BENCHMARK = get("needles")
CODE = re.compile(r"access code of (\w+) is: (\d{7})\.\n")


def samples(text: Text, **fields: object) -> list[Sample]:
    return BENCHMARK.samples(Request(**{"lengths": (1024,), "limit": 3, **fields}), text)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [256, 512, 1024, 4096])
def test_one_more_line_would_exceed_the_length(text: Text, length: int) -> None:
    for sample in samples(text, lengths=(length,), limit=2):
        prompt = sample.context + sample.question + sample.answer_prefix
        used = len(text.encode(prompt)) + sample.max_new_tokens
        longer = prompt.replace(needles.LINE, needles.LINE * 2, 1)
        assert used <= length < len(text.encode(longer)) + sample.max_new_tokens
        assert sample.length == length


def test_keys_values_and_the_one_that_is_asked(text: Text) -> None:
    for sample in samples(text, limit=20):
        codes = CODE.findall(sample.context)
        assert len(codes) == int(sample.subset.removeprefix("keys_"))
        assert len({key for key, _ in codes}) == len({value for _, value in codes}) == len(codes)
        asked = sample.question.removesuffix("?").split()[-1]
        assert sample.references == (dict(codes)[asked],)
        assert sample.answer_prefix == f" The access code of {asked} is:"
        assert sample.context.replace(needles.LINE, "") == needles.INTRO + "".join(
            needles.NEEDLE.format(key=key, value=value) for key, value in codes
        )


def test_depths_cover_the_haystack(text: Text) -> None:
    depths = [s.context.index("Note:") / len(s.context) for s in samples(text, subsets=("keys_1",), limit=60)]
    assert min(depths) < 0.2 and max(depths) > 0.8
    assert sum(depth < 0.5 for depth in depths) in range(15, 46)


def test_a_sample_depends_on_nothing_but_its_own_stream(text: Text) -> None:
    state = random.getstate()
    everything = {s.sample_id: s for s in samples(text, limit=4, lengths=(512, 256))}
    assert random.getstate() == state
    assert len(everything) == 2 * 4 * 4
    alone = samples(text, limit=2, lengths=(256,), subsets=("keys_4",))
    assert [s.sample_id for s in alone] == ["needles/keys_4/256/0/0", "needles/keys_4/256/0/1"]
    assert all(everything[s.sample_id] == s for s in alone)
    other_seed = samples(text, limit=2, lengths=(256,), subsets=("keys_4",), seed=1)
    assert {s.references for s in other_seed}.isdisjoint({s.references for s in alone})


def test_version_is_raised_when_samples_change(text: Text) -> None:
    """Committed runs rely on it: on a failure here raise ``Needles.version`` and put the new hash in."""
    found = samples(text, limit=2, lengths=(256,))
    assert (BENCHMARK.version, content_hash([s.to_json() for s in found])) == ("1", "3e4d3be923f42024")


def test_default_request_has_100_of_each_subset_at_1024() -> None:
    found = BENCHMARK.samples(Request(), Text(lambda text: [0] * (len(text) // 8), lambda ids: "", "short"))
    assert [(s.subset, s.length) for s in found] == [(f"keys_{n}", 1024) for n in (1, 2, 4, 8) for _ in range(100)]


@pytest.mark.parametrize(
    ("prediction", "score"),
    [(" 1234567.", 100.0), ("code: 1234567 or so", 100.0), ("123456", 0.0), ("1234 567", 0.0), ("", 0.0)],
)
def test_score(text: Text, prediction: str, score: float) -> None:
    sample = samples(text, limit=1)[0]
    sample = Sample.from_json({**sample.to_json(), "references": ["1234567"]})
    assert BENCHMARK.score(sample, prediction).score == score
