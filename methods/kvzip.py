"""KVzip: how much attention a pair gets while the model repeats its context, or does another task on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from methods.attention import log_weight_blocks
from methods.base import Generated, Method, MethodError, ModelInfo, Observation, Pass, Protection, loaded
from methods.kvpress import KVZIP_SINKS, Kvpress, KVzipPress
from methods.pretexts import Pretext, bound_name, digest, is_bound_name, is_file_name, read
from methods.registry import register, unknown

#: KVzip's prompts (Kim et al., arXiv 2505.23416, section 3.3): they are hyper-parameters of its scores
REPEAT_ALL = "\n\nRepeat the previous context exactly."
REPEAT_FROM = "\n\nRepeat the part of the previous context exactly, starting with"
#: the tasks it is compared with, in our own words
SUMMARIZE = "\n\nSummarize the previous context. Keep the names, numbers and facts in it."
ASK = "\n\nWrite questions about the previous context, each with its answer."
#: longest answer that these two generate, in tokens
ANSWER_TOKENS = 128

#: name -> the task of the second pass
PRETEXTS = {
    "repeat": Pretext(REPEAT_ALL, REPEAT_FROM, None),
    "summary": Pretext(SUMMARIZE, SUMMARIZE, Generated(ANSWER_TOKENS)),
    "questions": Pretext(ASK, ASK, Generated(ANSWER_TOKENS)),
}


class Peaks(NamedTuple):
    """Logarithm of the largest attention weight of each target column over the new tokens j, float32 ``[Hq, m]``.

    ``per_norm`` is the same with each row j divided by the norm of its hidden state first.
    """

    plain: Tensor
    per_norm: Tensor


@dataclass(frozen=True)
class Reconstruction(Method):
    """What KVzip and KVzip+ share: the passes that do a task on the context, and the attention seen there.

    pretext  the task: repeat, summary, questions, or a YAML file (:mod:`methods.pretexts`), which shows in the variant
             by its stem and a hash of its texts
    chunk    context tokens repeated in one pass
    lead_in  last tokens of the previous chunk that a later pass starts from

    With ``compat`` four sinks take the place of the template prefix, in the softmax and as protection.
    """

    pretext: str = "repeat"
    chunk: int = 2048
    lead_in: int = 8
    #: the texts of a pretext that was read from a file
    own: Pretext | None = loaded()

    needs: ClassVar[frozenset[str]] = frozenset({"hidden", "queries"})
    default_budget: ClassVar[str] = "global"
    protection: ClassVar[Protection] = Protection(prefix=True)
    kvpress: ClassVar[Kvpress] = KVzipPress(("layer", "global"), sinks=KVZIP_SINKS, pooled=True)
    cost: ClassVar[str] = "one more prefill"

    def __post_init__(self) -> None:
        if not (self.own or self.pretext in PRETEXTS or is_file_name(self.pretext) or is_bound_name(self.pretext)):
            offered = unknown(f"{self.name}.pretext", self.pretext, list(PRETEXTS))
            raise MethodError(f"{offered}; or a file that ends in .yaml or .yml")
        if is_file_name(self.pretext):
            self._read()  # what is wrong with it is an error of the option, not of a model
        if self.chunk < 1 or self.lead_in < 0:
            raise MethodError(f"{self.name} needs chunk >= 1 and lead_in >= 0, got {self.chunk} and {self.lead_in}")

    def bind(self, info: ModelInfo) -> Method:
        """The method itself; with a pretext from a file a copy whose ``pretext`` is its stem and a hash of its texts,
        so that other texts are another variant and results name no folder of this machine."""
        if not is_file_name(self.pretext):
            self._task()
            return self
        own = self._read()
        return replace(self, pretext=bound_name(Path(self.pretext), own), own=own)

    def _read(self) -> Pretext:
        return read(Path(self.pretext), f"{self.name}.pretext")

    def _task(self) -> Pretext:
        task = self.own or PRETEXTS.get(self.pretext)
        if task is None:
            raise MethodError(f"{self.name}.pretext={self.pretext} is how results name a file; give the file itself")
        return task

    def fingerprint(self) -> str:
        return digest(self.own) if self.own is not None else ""

    def passes(self, cached: int, prefix: int) -> list[Pass]:
        """One pass a chunk of the context, the template prefix left out, where the task is to write the context again;
        else one pass, which scores all pairs, the template's too. None where there is only the template."""
        task = self._task()
        if task.target is not None:
            whole = (0, cached)
            return [Pass(task.instruction, task.target, scored=whole)] if cached > prefix else []
        found = []
        for start in range(prefix, cached, self.chunk):
            target = (start, min(cached, start + self.chunk))
            if start == prefix:
                found.append(Pass(task.instruction, target))
            else:
                found.append(Pass(task.later, target, lead_in=(max(prefix, start - self.lead_in), start)))
        return found


@register
@dataclass(frozen=True)
class KVzip(Reconstruction):
    """s = largest attention weight that any query of the pass gives to the pair, over the G query heads of its KV
    head and all new tokens. Kim et al., "KVzip", arXiv 2505.23416, equation 2.

    The softmax (float32) runs over the template prefix, the chunk's own columns and the new tokens up to the query's
    own; where the pass does not write the context again, over the whole context and those. The whole template prefix is
    in it and is protected, as in the authors' code.
    """

    name: ClassVar[str] = "kvzip"
    summary: ClassVar[str] = "attention a pair gets while the model repeats the context"
    paper: ClassVar[str] = "arXiv 2505.23416"

    def score(self, seen: Observation) -> Tensor:
        return torch.zeros(seen.keys.shape[:2], device=seen.keys.device)

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        weights = peaks(seen, run, self.compat).plain
        return weights.view(-1, seen.group, weights.shape[-1]).amax(dim=1).exp()


def peaks(seen: Observation, run: Pass, compat: str) -> Peaks:
    """The peaks of one layer in one pass, computed once for all methods that read them."""
    if not isinstance(run.target, tuple):
        rows, columns = slice(0, seen.new), slice(*run.columns)
        return seen.shared(("peaks", run), lambda: largest_weights(seen, rows, seen.keys, columns))
    prefix = min(KVZIP_SINKS, run.columns[0]) if compat else seen.prefix
    return seen.shared(("peaks", run, prefix), lambda: _peaks(seen, run, prefix))


def _peaks(seen: Observation, run: Pass, prefix: int) -> Peaks:
    start, stop = run.columns
    prefix, first = min(prefix, start), seen.cached - seen.new
    # other chunks of the context are not in the denominator
    keys = torch.cat([seen.keys[:, :prefix], seen.keys[:, start:stop], seen.keys[:, first:]], dim=1)
    return largest_weights(seen, slice(0, seen.new), keys, slice(prefix, prefix + stop - start))


def largest_weights(seen: Observation, rows: slice, keys: Tensor, columns: slice) -> Peaks:
    """Peaks of the attention that some of a forward's tokens give to some columns.

    rows      the tokens j, places among the forward's n; the newest columns of ``keys`` are theirs
    keys      ``[H, C, d]``, the columns in the denominator
    columns   the m columns that are looked at
    """
    queries = seen.queries[:, rows]
    log_norms = seen.hidden[rows].float().norm(dim=-1).log()
    shape = (2, queries.shape[0], columns.stop - columns.start)
    found = torch.full(shape, float("-inf"), device=keys.device)
    for block, weights in log_weight_blocks(queries, keys, seen.scaling, columns, seen.block_bytes):
        found[0] = torch.maximum(found[0], weights.amax(dim=1))
        weights -= log_norms[block].unsqueeze(-1)
        found[1] = torch.maximum(found[1], weights.amax(dim=1))
    return Peaks(found[0], found[1])
