"""Made-up texts in the forms of RULER's sources, so that tests need no data of others."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

WORDS = ("amber", "bridge", "candle", "dune", "ember", "forest", "garden", "harbor", "island", "jungle", "kettle")


def prose(rng: random.Random, words: int) -> str:
    """Sentences of four to twelve words."""
    sentences = []
    while words > 0:
        some = rng.choices(WORDS, k=min(words, rng.randint(4, 12)))
        words -= len(some)
        sentences.append(" ".join(some).capitalize() + ".")
    return " ".join(sentences)


def squad(rng: random.Random, articles: int) -> dict[str, Any]:
    """SQuAD's own form: articles of five paragraphs with two questions and an impossible one each."""

    def question(number: str, *answers: str) -> dict[str, Any]:
        found = [{"text": answer, "answer_start": 0} for answer in answers]
        return {"question": f"What is {number}?", "id": number, "answers": found, "is_impossible": not answers}

    def paragraph(number: str) -> dict[str, Any]:
        asked = [question(f"{number}a", "amber", "Amber."), question(f"{number}b", f"word {number}")]
        asked.append(question(f"{number}c"))
        return {"context": f"This is word {number}. {prose(rng, 90)}", "qas": asked}

    data = [{"title": f"T{a}", "paragraphs": [paragraph(f"{a}-{p}") for p in range(5)]} for a in range(articles)]
    return {"version": "made up", "data": data}


def hub_rows(squad: dict[str, Any]) -> list[dict[str, Any]]:
    """SQuAD's own form as the rows of the hub."""
    return [
        {"title": article["title"], "context": paragraph["context"], "question": qa["question"]}
        | {"answers": {"text": [answer["text"] for answer in qa["answers"]], "answer_start": []}}
        for article in squad["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def hotpotqa(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """HotpotQA's official form: ten documents a question, two of which hold the answer."""
    rows = []
    for n in range(count):
        context = [[f"Title {n} {d}", [prose(rng, 25), " " + prose(rng, 25)]] for d in range(10)]
        facts = [[context[d][0], 0] for d in (7, 2)]
        rows.append({"question": f"Which {n}?", "answer": "yes", "context": context, "supporting_facts": facts})
    return rows


def write(folder: Path, scale: int = 1) -> Path:
    """A ``--data`` folder with all three."""
    rng = random.Random(7)
    files: dict[str, Any] = {
        "paul_graham/PaulGrahamEssays.json": {"text": prose(rng, 1500)},
        "squad/dev.json": squad(rng, 20 * scale),
        "hotpotqa/dev.json": hotpotqa(rng, 20 * scale),
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
    return folder
