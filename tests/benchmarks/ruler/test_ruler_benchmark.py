"""What holds of all 13 subsets: the fill rule, independence of the streams, and the versions' hashes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import lmeval_prompts
from benchmarks.base import BenchmarkError, Request, Text, content_hash
from benchmarks.registry import get
from benchmarks.ruler import benchmark as ruler
from benchmarks.ruler.source_texts import SOURCES
from benchmarks.ruler.tasks.plan import Draft, Filler, Plan
from tests.benchmarks import made_up
from tests.benchmarks.ruler.streams import make, prompt

RULER = get("ruler")
LIMITS = {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}  # all others: 128


@pytest.mark.parametrize("length", [1024, 2048, 4096])
@pytest.mark.parametrize("subset", ruler.FAMILIES)
def test_fits_and_one_more_unit_would_not(
    text: Text, texts: Path, subset: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    draw = Filler.draw

    def recorded(filler: Filler, plan: Plan) -> Draft:
        plans.append(plan)
        return draw(filler, plan)

    monkeypatch.setattr(Filler, "draw", recorded)
    for sample, plan in zip(make(subset, text, texts, length), plans, strict=True):
        room = length - sample.max_new_tokens
        # by bisection over the prompts as they are, so that neither the search nor its guess is trusted
        least, over = plan.least, 8 * length
        while over - least > 1:
            middle = (least + over) // 2
            fits = (plan.most or middle) >= middle and len(text.encode(plan.build(middle).prompt)) <= room
            least, over = (middle, over) if fits else (least, middle)
        assert plan.build(least).prompt == prompt(sample)
        assert sample.length == length and sample.max_new_tokens == LIMITS.get(subset, 128)
        assert sample.context_id == content_hash(sample.context)
        if subset not in SOURCES:
            assert len(text.encode(prompt(sample))) + sample.max_new_tokens > (0.9 if length == 1024 else 0.96) * length


@pytest.mark.parametrize("subset", ruler.FAMILIES)
def test_any_length(subset: str, tmp_path: Path) -> None:
    words = Text(lambda s: [0] * len(s.split()), lambda ids: "", "words")
    folder = made_up.write(tmp_path, scale=16)
    for length in (1024, 131072):
        (sample,) = make(subset, words, folder, length, count=1)
        used = len(words.encode(prompt(sample))) + sample.max_new_tokens
        assert 0.9 * length < used <= length


@pytest.mark.parametrize("subset", ruler.FAMILIES)
def test_a_stream_depends_on_nothing_else(text: Text, texts: Path, subset: str) -> None:
    state = random.getstate()
    first = make(subset, text, texts, count=3)
    assert random.getstate() == state
    assert make(subset, text, texts, count=1) == first[:1]
    assert len({s.context for s in first}) == 3
    assert make(subset, text, texts, count=1, seed=1)[0].context != first[0].context
    request = Request(lengths=(2048, 1024), limit=1, subsets=("fwe", subset), data=texts)
    assert [s for s in RULER.samples(request, text) if s.subset == subset and s.length == 1024] == first[:1]


def test_all_thirteen_from_a_folder_six_without(text: Text, texts: Path) -> None:
    request = Request(lengths=(1024,), limit=1, data=texts)
    found = RULER.samples(request, text)
    assert [s.sample_id for s in found] == [f"ruler/{subset}/1024/0/0" for subset in RULER.subsets]
    assert RULER.notes(request) == ()
    plain = RULER.samples(Request(lengths=(1024,), limit=1), text)
    assert plain == [s for s in found if s.subset not in SOURCES] and len(plain) == 6


def test_version_is_raised_when_samples_change(text: Text, texts: Path) -> None:
    """Committed runs and caches rely on it: on a failure here raise ``Ruler.version`` and put the new hashes in."""
    if ruler.wonderwords_version() != "3.0.1" or lmeval_prompts.installed_version() != lmeval_prompts.PINNED:
        pytest.skip("the hashes are of wonderwords 3.0.1 and the pinned lm-eval")
    plain = RULER.samples(Request(lengths=(1024,), limit=2), text)
    sourced = RULER.samples(Request(lengths=(1024,), limit=2, data=texts, subsets=tuple(SOURCES)), text)
    hashes = [content_hash([sample.to_json() for sample in samples]) for samples in (plain, sourced)]
    assert (RULER.version, hashes) == ("2", ["5060c16067dede83", "2fcf9845d6373d69"])


def test_tokenizers_that_cannot_work() -> None:
    characters = Text(lambda s: [ord(c) for c in s], lambda ids: "".join(map(chr, ids)), "characters")
    with pytest.raises(BenchmarkError, match="worked example of ruler vt: its shortest prompt takes"):
        ruler.generate("vt", 1024, 0, 1, characters)
    with pytest.raises(BenchmarkError, match="the prompt cannot be filled"):
        ruler.generate("niah_single_1", 1024, 0, 1, Text(lambda s: [], lambda ids: "", "none"))
