"""Training a KVzap surrogate, on a tiny random model with a tokenizer of its own."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from benchmarks.base import BenchmarkError
from harness.engine.adapter import LanguageModel
from harness.errors import HarnessError
from harness.models.prompts import Prompts
from harness.training import collector
from harness.training.corpus import open_corpus
from harness.training.excerpts import Excerpts, Sizes, make_plan
from harness.training.feature_store import Shape, Store
from harness.training.fit import NUMBERS, rounded
from harness.training.progress import Progress
from harness.training.repeat_forward import Repetition, collect, repetition
from harness.training.train import train
from methods.base import MethodError, ModelInfo
from methods.kvzap import files
from methods.kvzap.method import KVzapLinear, KVzapMLP
from methods.kvzap.surrogate import Surrogate, needed_shape
from methods.kvzip import REPEAT_ALL
from tests.harness.toys import toy_tokenizer
from tests.tiny import Plain, Seen, hook_count, some_ids, tiny

INFO = ModelInfo("tiny", layers=2, query_heads=9, kv_heads=3, head_size=8, hidden_size=36)
#: short texts, for speed; longer than the window of 128 that thresholds count
SIZES = Sizes(window=(140, 170), held_out=2, tokens_per_doc=60)


def tiny_llama() -> LanguageModel:
    return tiny(dtype=torch.float32, vocab_size=300, num_hidden_layers=2, hidden_size=36, max_position_embeddings=4096)


LM = tiny_llama()


def by_hand(chat: Repetition, seen: Seen, projection: Tensor) -> Tensor:
    """Targets ``[T, H]`` of a layer as the paper writes them: loops over the whole attention matrix."""
    found = torch.zeros(chat.context, 3)
    for token, query_head in itertools.product(range(chat.context), range(9)):
        head = query_head // 3
        added = (projection[:, query_head] @ seen.values[head][token]).norm()
        for j in range(chat.copy.start, chat.copy.stop):
            score = seen.weights[query_head][j, token] * added / seen.hidden[j].norm()
            found[token, head] = max(found[token, head], score)
    return found.clamp(min=1e-30).log()


def collected(chat: Repetition, features: str = "hidden") -> dict[int, tuple[Tensor, Tensor]]:
    """Features and targets of each layer."""
    found = {}
    collect(LM, chat, features, lambda layer, x, y: found.update({layer: (x, y)}))
    assert sorted(found) == [0, 1]
    return found


def test_targets_equal_the_formula_over_the_dense_attention_matrix() -> None:
    chat = repetition(Prompts(toy_tokenizer(())), tuple(range(100, 125)))
    _, seen = Plain(LM.model).forward(chat.ids)
    for layer, (x, y) in collected(chat).items():
        projection = LM.attention[layer].o_proj.weight.view(36, 9, 8)
        torch.testing.assert_close(y, by_hand(chat, seen[layer], projection), atol=1e-5, rtol=0)
        torch.testing.assert_close(x, seen[layer].hidden[: chat.context], atol=1e-5, rtol=0)


def test_layers_with_a_sliding_window_are_left_out_and_no_hook_stays() -> None:
    lm = tiny("gemma3")
    chat = Repetition(some_ids(50), 5, 25)
    seen: list[tuple[int, torch.Size, torch.Size]] = []
    collect(lm, chat, "hidden", lambda layer, x, y: seen.append((layer, x.shape, y.shape)))
    shapes = torch.Size((25, lm.info.hidden_size)), torch.Size((25, lm.info.kv_heads))
    assert seen == [(0, *shapes), (1, *shapes)] and len(lm.attention) == 4
    assert hook_count(lm.model) == 0


def test_both_copies_are_the_same_tokens_in_one_chat() -> None:
    tokenizer = toy_tokenizer(())
    text = "Ein Text, zweimal."
    chat = repetition(Prompts(tokenizer), tuple(tokenizer.encode(text)))
    turns = [{"role": "user", "content": text + REPEAT_ALL}]
    asked = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(chat.ids) == asked + text
    assert chat.ids[chat.copy] == chat.ids[chat.prefix : chat.context]
    assert tokenizer.decode(chat.ids[: chat.prefix]) == "<|user|>\n"


def test_keys_and_values_are_those_of_the_cache() -> None:
    chat = repetition(Prompts(toy_tokenizer(())), tuple(range(30)))
    with torch.no_grad():
        cache = LM.model(torch.tensor([chat.ids])).past_key_values
    for layer, (read, _) in collected(chat, "keys-values").items():
        kept = cache.layers[layer]
        wanted = torch.cat([part[0, head] for part in (kept.keys, kept.values) for head in range(3)], dim=1)
        torch.testing.assert_close(read, wanted[: chat.context], atol=1e-5, rtol=0)


def write_texts(folder: Path, counts: Sequence[int] = (6, 9, 4), length: int = 200) -> Path:
    """A subset of each count; row 1 of each is too short."""
    folder.mkdir(exist_ok=True)
    draw = torch.Generator().manual_seed(0)
    for number, count in enumerate(counts):
        with (folder / f"subset{number}.jsonl").open("w") as lines:
            for row in range(count):
                letters = torch.randint(97, 123, (50 if row == 1 else length,), generator=draw)
                lines.write(json.dumps({"text": bytes(letters.tolist()).decode(), "lang": "none"}) + "\n")
    return folder


def excerpts_of(folder: Path, seed: int = 0, sizes: Sizes = SIZES) -> Excerpts:
    return Excerpts(open_corpus(str(folder)), toy_tokenizer(()), seed, sizes)


def places(documents: Sequence[Any]) -> list[tuple[str, int]]:
    return [(document.subset, document.row) for document in documents]


def test_the_first_long_enough_documents_are_held_out_and_the_rest_take_turns(tmp_path: Path) -> None:
    excerpts = excerpts_of(write_texts(tmp_path))
    plan = make_plan(excerpts, None)
    assert places(plan.held_out) == [(f"subset{n}", row) for n in range(3) for row in (0, 2)]
    assert plan.short == 3 and len(plan.train) == 3 + 6 + 1
    subsets = [document.subset[-1] for document in plan.train]
    assert "".join(subsets) == "012" + "01" * 2 + "1" * 3
    assert not set(places(plan.train)) & set(places(plan.held_out))
    assert sorted(places(plan.train))[:3] == [("subset0", row) for row in (3, 4, 5)]


def test_a_plan_is_the_start_of_a_longer_one_and_changes_with_the_seed(tmp_path: Path) -> None:
    excerpts = excerpts_of(write_texts(tmp_path))
    whole = make_plan(excerpts, None)
    assert make_plan(excerpts, 4).train == whole.train[:4]
    other = make_plan(excerpts_of(tmp_path, seed=1), None)
    assert other.train != whole.train and sorted(places(other.train)) == sorted(places(whole.train))


def test_an_excerpt_is_a_window_of_the_document_with_places_drawn_in_it(tmp_path: Path) -> None:
    excerpts = excerpts_of(write_texts(tmp_path))
    starts, lengths = set(), set()
    for document in make_plan(excerpts, None).train:
        cut = excerpts.cut(document.subset, document.row)
        assert cut is not None and cut == excerpts.cut(document.subset, document.row)
        assert 140 <= len(cut.ids) == document.tokens <= 170
        assert len(set(cut.places)) == len(cut.places) == document.rows == 60
        assert list(cut.places) == sorted(cut.places) and cut.places[0] >= 0 and cut.places[-1] < len(cut.ids)
        text = excerpts.corpus.text(document.subset, document.row)
        window = excerpts.tokenizer.decode(cut.ids)
        assert window in text
        starts.add(text.index(window))
        lengths.add(len(window))
    assert len(starts) > 3 and len(lengths) > 3


@pytest.mark.parametrize("line", ["{", '{"words": "x"}', "[1]", '{"text": 5}'])
def test_a_broken_line_is_named_with_its_file_and_number(tmp_path: Path, line: str) -> None:
    write_texts(tmp_path)
    path = tmp_path / "subset1.jsonl"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:2], "", line, *rows[2:]]))
    with pytest.raises(BenchmarkError, match=r"subset1\.jsonl, line 4: "):
        open_corpus(str(tmp_path))


MISSING = ("./none", "/none", "a/b/c", "~/none")  # not looked for on the hub
NO_DATA = [
    (".", r"has no \.jsonl file"),
    ("one.jsonl", "is not a folder"),
    *((gone, f"--data {gone} does not exist; give a folder of .jsonl files") for gone in MISSING),
    ("nobody/nothing", "nobody/nothing: not a local folder, and the hub has no data set"),
]


@pytest.mark.parametrize(("data", "message"), NO_DATA)
def test_data_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HarnessError, match=message):
        open_corpus(data)


def test_a_digest_follows_the_texts(tmp_path: Path) -> None:
    first = open_corpus(str(write_texts(tmp_path / "a"))).digest
    assert open_corpus(str(write_texts(tmp_path / "b"))).digest == first
    assert open_corpus(str(write_texts(tmp_path / "b", length=201))).digest != first


def test_a_data_set_of_the_hub_is_read_by_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def rows(name: str) -> datasets.DatasetDict:
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": [name + "0", name + "1"]})})

    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda _: ["code", "math"])
    monkeypatch.setattr(datasets, "load_dataset", lambda _, config: rows(config))
    corpus = open_corpus("some/texts")
    assert corpus.subsets == {"code": 2, "math": 2} and corpus.text("math", 1) == "math1"
    bad = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"words": ["x"]})})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: bad)
    with pytest.raises(HarnessError, match="subset 'code' has the columns words"):
        open_corpus("some/texts")


def test_a_store_gives_back_what_was_put_and_its_size_is_stated_before(tmp_path: Path) -> None:
    store = Store(tmp_path, Shape(2, 5, 3), [4, 2])
    assert store.missing_bytes() == sum(2 * rows * (5 + 3) * 2 for rows in (4, 2))
    x, y = torch.randn(6, 5), torch.randn(6, 3) * 1e6
    for number, rows in enumerate((slice(0, 4), slice(4, 6))):
        for layer in range(2):
            store.put(number, layer, x[rows] + layer, y[rows])
        store.finish(number)
    assert store.done == 2 and store.missing_bytes() == 0
    assert torch.equal(torch.from_numpy(store.features(1, slice(0, 6)).copy()), (x + 1).half())
    assert torch.equal(torch.from_numpy(store.targets(0, slice(4, 6)).copy()), y[4:].clamp(-65504, 65504).half())
    assert sum(path.stat().st_size for path in tmp_path.glob("*.f16")) == Shape(2, 5, 3).size(6)
    with pytest.raises(HarnessError, match="too short"):
        Store(tmp_path, Shape(2, 5, 3), [4, 2, 9]).features(0, slice(6, 15))


class Training:
    """Trains on one model and its texts; ``folder`` has everything, the cache too."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.cache("cache")
        LM.model.save_pretrained(folder / "model")
        toy_tokenizer(()).save_pretrained(folder / "model")
        write_texts(folder / "texts")

    def cache(self, name: str) -> None:
        self.monkeypatch.setenv("XDG_CACHE_HOME", str(self.folder / name))

    def __call__(self, kind: str, out: str, forwards: int | None = None, **settings: Any) -> str:
        """Train, and be killed after so many forwards; what it printed."""
        left = itertools.count() if forwards is None else iter(range(forwards))

        def counted(*given: Any) -> None:
            if next(left, None) is None:
                raise Killed
            collect(*given)

        self.monkeypatch.setattr(collector, "collect", counted)
        given = {"data": str(self.folder / "texts"), "sizes": SIZES, **settings}
        printed = io.StringIO()
        progress = Progress(Console(file=printed, width=200))
        train(str(self.folder / "model"), kind, self.folder / out, progress=progress, **given)
        return printed.getvalue()

    def weights(self, *outs: str) -> list[bytes]:
        return [(self.folder / out / files.WEIGHTS).read_bytes() for out in outs]

    def card(self, out: str) -> dict[str, Any]:
        card: dict[str, Any] = json.loads((self.folder / out / files.CARD).read_text())
        return card


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    return Training(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "features", "cls", "width"),
    [
        ("linear", "hidden", KVzapLinear, 36),
        ("mlp", "hidden", KVzapMLP, 36),
        ("linear", "keys-values", KVzapLinear, 48),
    ],
)
def test_a_trained_surrogate_loads_and_its_card_says_what_it_is(
    run: Training, kind: str, features: str, cls: type[KVzapLinear], width: int
) -> None:
    printed, card = run(kind, "out", documents=7, features=features), run.card("out")
    method = cls(str(run.folder / "out")).bind(INFO)
    assert method.surrogate is not None and method.surrogate.shape.input_dim == width
    assert method.thresholds(INFO) == card["thresholds"] and list(card["thresholds"]) == [
        "0.25",
        "0.5",
        "0.75",
        "0.875",
    ]
    said = {"model": "model", "kind": kind, "features": features, "documents": 7, "tokens": 420, "seed": 0}
    assert {**card, **said, "held_out_documents": 6} == card
    # a context of about 160 tokens, of which 128 stay, cannot lose half
    assert "0.5 is unreachable" in card["thresholds_note"] and "0.5 is unreachable" in printed
    assert card["r2"] == pytest.approx(sum(card["r2_by_layer"]) / 2, abs=1e-4) and 0 < card["r2"] < 1
    assert f"Mean R2: {card['r2']:.4f}" in printed
    assert "Held-out features and targets: 0 MB" in printed


class Killed(BaseException):
    """Ends a training where it stands, as a signal would."""


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("forwards", [3, 9])
def test_a_killed_training_resumes_and_ends_as_if_it_had_not_been(
    run: Training, monkeypatch: pytest.MonkeyPatch, kind: str, forwards: int
) -> None:
    monkeypatch.setattr(collector, "SAVE_EVERY", 2)
    with pytest.raises(Killed):
        run(kind, "resumed", forwards, documents=6)
    # 6 held-out documents and 6 to learn; moments are saved after every second one
    lost = 1 if kind == "linear" and forwards == 9 else 0
    run(kind, "resumed", 12 - forwards + lost, documents=6)
    run.cache("other cache")
    run(kind, "whole", 12, documents=6)
    resumed, whole = run.weights("resumed", "whole")
    assert resumed == whole and run.card("resumed") == run.card("whole")


def test_one_collection_serves_both_kinds_and_more_documents(run: Training) -> None:
    run("mlp", "mlp", documents=4)
    run("linear", "linear", 0, documents=4)  # from the stored rows
    run("mlp", "fewer", 0, documents=3)
    run("mlp", "more", 2, documents=6)
    run("linear", "live", 7, documents=7)  # the store has 6, so this one runs without it
    assert [run.card(out)["feature_store"] for out in ("linear", "live")] == ["float16", "none"]


def test_stored_rows_and_running_moments_give_the_same_surrogate(run: Training) -> None:
    run("linear", "live", documents=6)
    run("mlp", "mlp", documents=6)
    run("linear", "stored", documents=6)
    live, stored = (files.load(run.folder / out).surrogate for out in ("live", "stored"))
    for name, value in live.state_dict().items():
        torch.testing.assert_close(stored.state_dict()[name], value, atol=5e-3, rtol=0)


def test_a_shorter_plan_does_not_use_the_moments_of_a_longer_one(run: Training) -> None:
    run("linear", "long", documents=7)
    run("linear", "short", documents=3)
    run.cache("other cache")
    run("linear", "fresh", documents=3)
    short, fresh = run.weights("short", "fresh")
    assert short == fresh
    run.cache("cache")
    run("linear", "long again", 0, documents=7)  # the longer collection is still there


def test_another_model_under_the_same_name_is_collected_again(run: Training) -> None:
    run("mlp", "first", documents=2)
    changed = tiny_llama().model
    with torch.no_grad():
        changed.model.layers[1].self_attn.o_proj.weight.mul_(2)
    changed.save_pretrained(run.folder / "model")
    run("mlp", "second", 8, documents=2)
    first, second = run.weights("first", "second")
    assert first != second


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_figures_are_those_of_the_weights_as_they_are_read_back(tmp_path: Path, kind: str) -> None:
    surrogate = Surrogate(needed_shape(INFO, kind))
    files.save(surrogate, {}, tmp_path, NUMBERS[kind])
    before = {name: value.clone() for name, value in surrogate.state_dict().items()}
    after = rounded(surrogate).state_dict()
    for name, value in files.load(tmp_path).surrogate.state_dict().items():
        assert torch.equal(after[name], value)
        assert torch.equal(value, before[name]) == (kind == "linear")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "cubic"}, "kind must be linear or mlp, got 'cubic'"),
        ({"features": "values"}, "features must be hidden or keys-values, got 'values'"),
        ({"documents": 0}, "--documents must be 1 or more, got 0"),
        ({"tokens_per_doc": 0}, "--tokens-per-doc must be 1 or more, got 0"),
        ({"data": "missing.jsonl"}, "is not a folder"),
        ({"model": "no/model"}, "model 'no/model'"),
        ({"out": Path("file")}, "is a file; give a folder"),
        ({}, "fewer than 750 tokens"),
    ],
)
def test_mistakes_are_named_before_the_model_loads(
    run: Training, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(run.folder)
    (run.folder / "file").write_text("")
    monkeypatch.setattr("harness.models.loading.load_model", lambda *_: pytest.fail("loaded the model"))
    given = {"model": "model", "kind": "linear", "out": Path("out"), "data": "texts", **settings}
    with pytest.raises((HarnessError, MethodError), match=said):
        train(**given, progress=Progress(Console(file=io.StringIO())))
    assert not (run.folder / "out").exists()


def test_a_model_with_too_few_positions(run: Training) -> None:
    path = run.folder / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 300}))
    with pytest.raises(HarnessError, match="has 300 positions; training needs more than 340"):
        run("linear", "out")


def test_a_full_disk_is_noticed_before_the_first_forward(run: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(HarnessError, match=r"need another 0\.0 GB .* XDG_CACHE_HOME"):
        run("mlp", "out", 0)
