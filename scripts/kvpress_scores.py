"""Scores and kept pairs of NVIDIA/kvpress on the tokens of a job that `scripts/kvpress_parity.py` wrote.

Runs in kvpress's own environment and imports nothing of ours; `kvpress_parity.py` starts it and says how to
create that environment. Each press's own `score`, `compress` or `forward_hook` is called inside two prefills (one
eager, for the press that needs attention weights), and KVzip's context manager once for each of its settings.

    kvpress-env/bin/python scripts/kvpress_scores.py job.json MODEL.gguf FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvpress
import torch
import transformers
from kvpress.presses import kvzip_press
from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, pipeline

#: scorers by the names of the job's cases, made for a removed fraction
SCORERS: dict[str, Callable[[float], Any]] = {
    "knorm": lambda r: kvpress.KnormPress(r),
    "keydiff": lambda r: kvpress.KeyDiffPress(r),
    "streaming_llm": lambda r: kvpress.StreamingLLMPress(r),
    "tova": lambda r: kvpress.TOVAPress(r),
    "snapkv": lambda r: kvpress.SnapKVPress(r),
    "pyramidkv": lambda r: kvpress.PyramidKVPress(r),
    "expected_attention": lambda r: kvpress.ExpectedAttentionPress(r, epsilon=1e-2),
    "expected_attention_plain": lambda r: kvpress.ExpectedAttentionPress(r),
    "observed_attention": lambda r: kvpress.ObservedAttentionPress(r),
}


def main() -> None:
    job_file, gguf, folder = map(Path, sys.argv[1:4])
    job = json.loads(job_file.read_text(encoding="utf-8"))
    transformers.utils.logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # KVzipPress loads the tokenizer again by the model's path; one read from a GGUF splits wrongly once it is saved
    kvzip_press.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *_: tokenizer)
    found = Found(job, model)
    with torch.inference_mode():
        found.prefill(eager=False)
        found.prefill(eager=True)
        for case, setting in job["kvzip"].items():
            found.kvzip(case, setting)
        expected = {f"{level}": found.rerotated(level) for level in job["rerotated"]}
    save_file(expected, folder / "rerotated.safetensors")
    save_file(found.scores, folder / "scores.safetensors")
    save_file(found.kept, folder / "kept.safetensors")
    versions = {"kvpress": kvpress_version(), "transformers": transformers.__version__, "torch": torch.__version__}
    said = {"versions": versions, "prompts": prompts(job, model, tokenizer)}
    (folder / "said.json").write_text(json.dumps(said), encoding="utf-8")


def kvpress_version() -> str:
    from importlib.metadata import version

    return version("kvpress")


def prompts(job: dict[str, Any], model: Any, tokenizer: Any) -> dict[str, list[list[int]]]:
    """Ids of context and question as kvpress's pipeline makes them, with the question out of view and in view (there
    it is put into the context, as its evaluation does)."""
    assemble = pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer).preprocess
    text, question = job["text"], job["question"]
    found = {}
    for mode, (context, asked) in {"agnostic": (text, question), "aware": (text + question, "")}.items():
        made = assemble(context, [asked], job["answer_prefix"], tokenizer.model_max_length)
        found[mode] = [made["context_ids"][0].tolist(), made["questions_ids"][0][0].tolist()]
    return found


class Found:
    """Scores ``[L, H, T]`` by case, and kept pairs as bool of the same shape by ``case|level``."""

    def __init__(self, job: dict[str, Any], model: Any) -> None:
        self.job = job
        self.model = model
        self.ids = torch.tensor([job["ids"]])
        self.scores: dict[str, Tensor] = {}
        self.kept: dict[str, Tensor] = {}
        self._layers: dict[str, list[Tensor]] = {}

    def prefill(self, eager: bool) -> None:
        """One prefill under which every press scores and prunes; the cache stays as it is."""
        self.model.set_attn_implementation("eager" if eager else "sdpa")
        presses = self._presses(eager)
        for press in presses.values():
            if not isinstance(press, kvpress.DMSPress):
                press.post_init_from_model(self.model)
        hooks = []
        for layer in self.model.model.layers:
            layer.self_attn.rotary_emb = self.model.model.rotary_emb
            hooks.append(layer.self_attn.register_forward_hook(self._hook(presses), with_kwargs=True))
        self._layers = {}
        self.model.model(input_ids=self.ids, past_key_values=DynamicCache())
        for hook in hooks:
            hook.remove()
        for name, layers in self._layers.items():
            (self.kept if "|" in name else self.scores)[name] = torch.stack(layers)

    def _presses(self, eager: bool) -> dict[str, Any]:
        """A press for each case and level."""
        found = {}
        for case, levels in self.job["levels"].items():
            name, budget = case.rsplit(" ", 1)
            if name in self.job["kvzip"] or (name == "observed_attention") != eager:
                continue
            for level in levels:
                press = self._zap(name, level) if name in self.job["weights"] else SCORERS[name](level)
                if budget == "layer":
                    press = kvpress.AdaKVPress(press)
                if budget == "threshold":
                    press = kvpress.DMSPress(press, threshold=level)
                found[f"{case}|{level}"] = press
        return found

    def _zap(self, name: str, level: float) -> Any:
        """KVzap with a surrogate from a folder; kvpress itself only takes published ones, by the model's name."""
        folder = Path(self.job["weights"][name])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {key: config[key] for key in ("input_dim", "output_dim", "hidden_dim", "n_modules")}
        press = kvpress.KVzapPress(max(0.0, level), model_type=name.removeprefix("kvzap_"))  # a tau is below 0
        press.kvzap_model = KVzapModel(KVzapConfig(**sizes))
        press.kvzap_model.load_state_dict(load_file(folder / "model.safetensors"))
        press.post_init_from_model = lambda model: None
        return press

    def _hook(self, presses: dict[str, Any]) -> Callable[..., None]:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            layer = kwargs["past_key_values"].layers[module.layer_idx]
            hidden, keys, values, weights = kwargs["hidden_states"], layer.keys, layer.values, output[1]
            found: dict[str, Tensor] = {}
            for label, press in presses.items():
                case = label.split("|")[0].rsplit(" ", 1)[0]
                scorer = getattr(press, "press", press)
                if case not in found:
                    found[case] = scorer.score(module, hidden, keys, values, weights, kwargs)
                    self._layers.setdefault(case, []).append(found[case][0].float().clone())
                if case != "streaming_llm":  # all others have the same scores at every level
                    scorer.score = lambda *_, known=found[case]: known.clone()
                module.masked_key_indices = None
                if isinstance(press, kvpress.DMSPress):
                    press.forward_hook(module, args, kwargs, output)
                    left = keys
                else:
                    left, _ = press.compress(module, hidden, keys, values, weights, kwargs)
                self._layers.setdefault(label, []).append(kept_pairs(module, keys, left))
                module.masked_key_indices = None
                vars(scorer).pop("score", None)

        return hook

    def rerotated(self, level: float) -> Tensor:
        """Log-probabilities ``[n, vocabulary]`` after each token of the question, read as the pipeline reads it: from
        the number of kept pairs on, over StreamingLLM's pairs with keys rotated to their positions in the cache."""
        self.model.set_attn_implementation("sdpa")
        cache = DynamicCache()
        with kvpress.KeyRerotationPress(kvpress.StreamingLLMPress(level))(self.model):
            self.model.model(input_ids=self.ids, past_key_values=cache)
        start, question = cache.get_seq_length(), torch.tensor([self.job["question_ids"]])
        places = torch.arange(start, start + question.shape[1]).unsqueeze(0)
        logits = self.model(input_ids=question, past_key_values=cache, position_ids=places).logits
        return logits[0].float().log_softmax(dim=-1).contiguous()

    def kvzip(self, case: str, setting: dict[str, Any]) -> None:
        """KVzip's passes once, then its own selection for each budget and level."""
        self.model.set_attn_implementation("sdpa")
        press = CapturedKVzip(compression_ratio=0.5, **setting)
        press.wanted = {
            f"{case} {budget}|{level}": (budget, level)
            for budget in ("global", "layer")
            for level in self.job["levels"].get(f"{case} {budget}", [])
        }
        with press(self.model):
            self.model.model(input_ids=self.ids, past_key_values=DynamicCache())
        self.scores[case] = press.captured
        self.kept |= press.kept


class CapturedKVzip(kvpress.KVzipPress):
    """KVzipPress that selects for several levels from one scoring, and keeps what it found."""

    def compress_post(self, model: Any) -> None:
        values = self.score_val.clone()
        self.captured = values[:, 0].float()
        self.kept = {}
        for label, (budget, level) in self.wanted.items():
            self.score_val, self.compression_ratio, self.layerwise = values.clone(), level, budget == "layer"
            super().compress_post(model)
            modules = [layer.self_attn for layer in model.model.layers]
            self.kept[label] = torch.stack([unmasked(module, values.shape[2:]) for module in modules])
            for module in modules:
                module.masked_key_indices = None


def unmasked(module: Any, shape: Any) -> Tensor:
    kept = torch.ones(tuple(shape), dtype=torch.bool)
    if module.masked_key_indices is not None:
        _, heads, places = module.masked_key_indices
        kept[heads, places] = False
    return kept


def kept_pairs(module: Any, keys: Tensor, left: Tensor) -> Tensor:
    """Which pairs a press kept, bool ``[H, T]``: those it did not mask, or whose keys are among the ``left`` ones."""
    if left.shape == keys.shape:
        return unmasked(module, keys.shape[1:3])
    before, after = _hashes(keys[0]), _hashes(left[0])
    kept = torch.stack([torch.isin(row, some) for row, some in zip(before, after, strict=True)])
    assert (kept.sum(-1) == left.shape[2]).all(), "two keys of a head are equal"
    return kept


def _hashes(keys: Tensor) -> Tensor:
    bits = keys.contiguous().view(torch.int32).long()
    return (bits * torch.arange(1, 2 * bits.shape[-1], 2).square()).sum(-1)


if __name__ == "__main__":
    main()
