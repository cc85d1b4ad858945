"""A bundle with fewer key and value heads, made from another (Ainslie et al. 2023)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from seqattn.attention.heads import pool_key_heads
from seqattn.bundle.architecture import Architecture, Vocabularies
from seqattn.bundle.bundle import TextBundle, load_bundle
from seqattn.bundle.files import read_config, write_bundle
from seqattn.checking import Count, CountOrNone, checked
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.metrics.text import TextScore, named
from seqattn.models.stack import TransformerState
from seqattn.models.transformer import Transformer
from seqattn.ops.memory import keep_freed_memory
from seqattn.runs.evaluate import generate, read_split
from seqattn.runs.grouping import grouped
from seqattn.runs.search import BatchedSearch, check_search
from seqattn.runs.tables import print_comparison
from seqattn.runs.task_options import task_class
from seqattn.tokens import BOS, EOS


class Report(NamedTuple):
    """What is told of a model before and after."""

    parameters: int
    target_bytes: int
    """What a target token adds to the cache."""
    source_bytes: int
    """Keys and values of a source token."""
    scores: list[TextScore]


@checked
@dataclass(frozen=True)
class Conversion:
    """Each key and value head of the new bundle is the mean of the old ones that it stands for.

    Args:
        bundle: the path of a trained Transformer.
        output: the directory for the new bundle, which must not be there.
        data: what it is scored on, and trained on further.
        generation: the search that it is scored by.
        scorer: how outputs are compared with their references.
        heads: gqa, or mqa for one key head.
        num_kv_heads: key and value heads G to pool to, dividing those that are there.
        slots: of encoder, decoder and cross, those whose heads are pooled.
        uptrain_steps: optimizer steps of further training before it is written.
        scores: whether it is scored before and after, where the data can be read.
        split: what is scored.
        device: where the model runs.
        cache_dir: of the data; None for the usual place.
        trust: packages, beside this one, that parts of the bundle may come from.

    Raises:
        UserError: for heads that are not said, or twice.
    """

    bundle: str
    output: str
    data: Any
    generation: BatchedSearch
    scorer: Any
    heads: Literal["gqa", "mqa"] = "gqa"
    num_kv_heads: Count | None = None
    slots: list[str] = field(default_factory=lambda: ["encoder", "decoder", "cross"])
    uptrain_steps: CountOrNone = 0
    scores: bool = True
    split: Literal["train", "val", "test"] = "val"
    device: str = "cpu"
    cache_dir: str | None = None
    trust: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.heads == "mqa" and self.num_kv_heads not in (None, 1):
            kept = f"num_kv_heads={self.num_kv_heads}"
            raise UserError(f"heads=mqa has one key head; leave {kept} out")
        if self.heads == "gqa" and self.num_kv_heads is None:
            raise UserError("heads=gqa needs to know how many key heads: add num_kv_heads=N")

    def run(self) -> Path:
        """Converts, scores, trains on where that is asked for, and writes; returns the directory.

        Raises:
            UserError: where the bundle cannot be used, or its attentions not be pooled.
        """
        output = Path(self.output).expanduser()
        if output.exists():
            raise UserError(f"output={output} is there already; name another directory")
        keep_freed_memory()
        config = read_config(Path(self.bundle).expanduser(), trust=self.trust)
        kind = task_class(config)
        if kind.output == "spans":
            raise UserError(
                f"{self.bundle} answers questions by spans; convert takes an encoder-decoder"
            )
        check_search(kind.output, self.generation)
        bundle = load_bundle(self.bundle, self.device, trust=self.trust)
        assert isinstance(bundle, TextBundle)
        converted = pooled(bundle, self.heads, self.num_kv_heads or 1, self.slots)
        texts = self._texts(kind.reads)
        reports = {"before": self._report(bundle, texts)}
        reports["after"] = self._report(converted, texts)
        if self.uptrain_steps:
            from seqattn.runs.uptraining import uptrain  # Lightning takes seconds to import

            uptrain(converted, self.data, self.uptrain_steps, self.device, self.cache_dir)
            reports["uptrained"] = self._report(converted, texts)
        last = list(reports.values())[-1]
        scores = {"converted from": self.bundle, **named(last.scores, self.split)}
        write_bundle(output, converted.config, converted.model.cpu(), converted.tokenizer, scores)
        self._print(reports)
        return output

    def _texts(self, kind: str) -> Texts | None:
        """What to score on; None where nothing is asked for, or it cannot be read."""
        if not self.scores:
            return None
        try:
            return read_split(self.data, self.split, self.cache_dir, kind)
        except (UserError, OSError) as error:
            print(f"not scored: {error}", file=sys.stderr)
            return None

    def _report(self, bundle: TextBundle, texts: Texts | None) -> Report:
        scores: list[TextScore] = []
        if texts is not None:
            outputs = generate(bundle, self.generation, texts.sources)
            scores = self.scorer.score(outputs.texts, texts.references, texts.sources)
        parameters = sum(parameter.numel() for parameter in bundle.model.parameters())
        return Report(parameters, *_cache_bytes(bundle.model), scores)

    def _print(self, reports: Mapping[str, Report]) -> None:
        some = list(reports.values())
        rows = {
            "parameters": [f"{report.parameters:,}" for report in some],
            "cache, bytes a target token": [f"{report.target_bytes:,}" for report in some],
            "source keys and values, bytes a token": [f"{r.source_bytes:,}" for r in some],
        }
        notes = []
        for number, one in enumerate(some[0].scores):
            values = [f"{report.scores[number].value:.2f}" for report in some]
            rows[f"{self.split} {one.name}"] = values
            notes.append(f"{one.name}: {one.signature}")
        notes.append(f"written to {self.output}; go on training by init_from={self.output}")
        print_comparison(f"{self.bundle} as {self.heads}", list(reports), rows, notes)


def pooled(bundle: TextBundle, heads: str, num_kv_heads: int, slots: Sequence[str]) -> TextBundle:
    """The bundle with so many key and value heads, each the mean of those it stands for.

    Args:
        bundle: of a Transformer; left as it is.
        heads: the name in conf/attention that the result goes by.
        num_kv_heads: key and value heads G.
        slots: of encoder, decoder and cross.

    Raises:
        UserError: where its attentions cannot be pooled.
    """
    if not isinstance(bundle.model, Transformer):
        raise UserError(
            f"{bundle.path} holds a {type(bundle.model).__name__}, which has no key heads to "
            "pool; convert takes a Transformer"
        )
    config = grouped(bundle.config, heads, num_kv_heads, slots)
    tokenizer = bundle.tokenizer
    sizes = Vocabularies(tokenizer.source_size, tokenizer.target_size, tokenizer.joint)
    model = Architecture.of(config).build(sizes)
    assert isinstance(model, Transformer)
    pool_key_heads(bundle.model, model)
    device = next(bundle.model.parameters()).device
    return replace(bundle, model=model.to(device).eval(), config=config, scores={})


@torch.inference_mode()
def _cache_bytes(model: Any) -> tuple[int, int]:
    """Bytes that a target token adds to the cache, and a source token's keys and values; measured.

    A cache that is bounded grows by this until it is full.
    """
    device = next(model.parameters()).device
    source, token = (torch.full((1, 1), mark, device=device) for mark in (EOS, BOS))
    state = model.start(model.encode(source))
    assert isinstance(state, TransformerState)
    model.features(token, state)
    first = state.nbytes
    model.features(token, state)
    kept = sum(part.numel() * part.element_size() for pair in state.source for part in pair)
    return state.nbytes - first, kept
