"""Training a KVzap surrogate, on tiny random models with a tokenizer of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.engine.adapter import LanguageModel
from harness.prompts import Prompts
from harness.training.collect import Repetition, collect, repetition

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and the two marks of the template."""
    alphabet = {symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def tiny_llama(layers: int = 2) -> LlamaForCausalLM:
    """9 query and 3 KV heads, as SmolLM2 has them; random weights large enough for peaked attention."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=36,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=8,
        max_position_embeddings=4096,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return LanguageModel(tiny_llama(), "tiny")


def brute_force(model: LlamaForCausalLM, chat: Repetition, layer: int) -> torch.Tensor:
    """The targets as the paper writes them, from the dense attention matrix of the model's own eager attention."""
    module = model.model.layers[layer].self_attn
    seen = {}
    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: seen.update(x=(args or (kwargs["hidden_states"],))[0][0]), with_kwargs=True
    )
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = model(torch.tensor([chat.ids]), output_attentions=True).attentions[layer][0]
        hook.remove()
        values = module.v_proj(seen["x"]).view(len(chat.ids), 3, 8)
        columns = module.o_proj.weight.view(36, 9, 8)
        found = torch.zeros(chat.context, 3)
        for token in range(chat.context):
            for query_head in range(9):
                added = (columns[:, query_head] @ values[token, query_head // 3]).norm()
                for j in range(chat.copy.start, chat.copy.stop):
                    score = attention[query_head, j, token] * added / seen["x"][j].norm()
                    found[token, query_head // 3] = max(found[token, query_head // 3], score)
    model.set_attn_implementation("sdpa")
    return found.clamp(min=1e-30).log(), seen["x"][: chat.context]


def test_targets_equal_the_formula_over_the_dense_attention_matrix(lm: LanguageModel) -> None:
    chat = repetition(Prompts(tiny_tokenizer()), tuple(torch.randint(0, 256, (40,)).tolist()))
    got = {}
    collect(lm, chat, "hidden", lambda layer, x, y: got.update({layer: (x, y)}))
    assert sorted(got) == [0, 1]
    for layer, (x, y) in got.items():
        target, hidden = brute_force(lm.model, chat, layer)
        torch.testing.assert_close(y, target, atol=1e-5, rtol=0)
        torch.testing.assert_close(x, hidden, atol=1e-5, rtol=0)
