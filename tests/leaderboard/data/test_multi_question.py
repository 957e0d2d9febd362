"""Several questions on one context: scores by question and prefills, by brute force."""

from __future__ import annotations

from harness.results.schema import Line
from leaderboard.charts.multi_question import prefill_chart, question_chart
from leaderboard.charts.theme import GREY, LIGHT
from leaderboard.data.multi_question import PREFILLS, by_question, prefills
from tests.harness.made_runs import FULL, KNORM, KVZAP, both, changed, lines_of

AWARE = changed(KNORM, query_mode="aware")


def asked() -> list[Line]:
    """Three contexts of two questions, pruned once and for each question, beside the full cache."""
    lines: list[Line] = []
    for context in range(3):
        for question in range(2):
            place = {"question_index": question, "context_id": f"c{context}", "sample_id": f"s{context}/{question}"}
            for variant, pays in ((FULL, question == 0), (KNORM, question == 0), (AWARE, True)):
                scores = {"red": [10.0 * context + 50 * question]}
                lines += lines_of(variant, scores, **place, prefills_paid=int(pays))
    return lines


def test_scores_by_question() -> None:
    table = by_question(asked())
    assert list(zip(table["name"], table["mode"], table["question"], table["score"], strict=True)) == [
        (name, mode, question, score)
        for question, score in ((1, 10.0), (2, 60.0))
        for name, mode in (("full cache", "agnostic"), ("knorm head", "agnostic"), ("knorm head", "aware"))
    ]
    drawing = question_chart(table, ["knorm"]).to_dict()
    points = next(layer for layer in drawing["spec"]["layer"] if layer["mark"]["type"] == "point")
    scale = points["encoding"]["color"]["scale"]
    assert scale["domain"] == ["full cache", "knorm head"] and scale["range"][0] == GREY
    (rows,) = drawing["datasets"].values()
    modes = [row["mode"] for row in rows if row["name"] == "full cache" and row["question"] == 1]
    assert sorted(modes) == ["agnostic", "aware"]  # in each panel


def test_prefills_by_mode() -> None:
    table = prefills(asked(), {"knorm head 0.5": 35.0})
    paid = table.set_index("variant")
    assert list(paid["prefills"]) == [3, 3, 6] and list(paid["per context"]) == [1.0, 1.0, 2.0]
    assert paid.loc["knorm head 0.5", "score"] == 35.0 and paid.loc[AWARE.label, ["score"]].isna().all()
    (rows,) = prefill_chart(table, LIGHT, ["knorm"]).to_dict()["datasets"].values()
    assert [row["text"] for row in rows] == ["1 · score 35.0", "2"]


def test_two_thresholds_of_one_level_have_names_of_their_own() -> None:
    taus = [changed(KVZAP, level=tau) for tau in (-4.0, -4.1)]
    parts = [lines_of(FULL, both(90.0)), *(lines_of(one, both(70.0), removed=0.5, requested=0.5) for one in taus)]
    lines = [line.model_copy(update={"question_index": 0, "prefills_paid": 1}) for part in parts for line in part]
    names = ["full cache", *(one.label for one in taus)]
    assert list(by_question(lines)["name"]) == names == list(prefills(lines, {})["name"])


def test_without_a_row_there_are_columns() -> None:
    """Lines may lack what they need not have."""
    assert list(prefills(lines_of(FULL, both(90.0)), {})) == list(PREFILLS) and by_question([]).empty
