"""A bundle with fewer key and value heads, made from another (Ainslie et al. 2023)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from seqattn.attention.heads import MultiHeadAttention, pool_key_heads
from seqattn.bundle.architecture import Architecture, Vocabularies, cross_default
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.choices import SLOTS
from seqattn.bundle.files import write_bundle
from seqattn.bundle.nodes import build, describe, import_path
from seqattn.checking import Count, CountOrNone, checked
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.metrics.text import TextScore, named
from seqattn.models.transformer import Transformer
from seqattn.runs.bundle_run import outputs_for
from seqattn.runs.evaluate import ScoredRun
from seqattn.runs.tables import print_table
from seqattn.tokens import BOS, EOS


class Report(NamedTuple):
    """What is told of a model before and after: parameters, bytes a token, scores."""

    parameters: int
    target_bytes: int
    source_bytes: int
    scores: list[TextScore]


@checked
@dataclass(frozen=True, kw_only=True)
class Conversion(ScoredRun):
    """Each key and value head of the new bundle is the mean of the old ones that it stands for.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`; it is
            trained further on the same data.
        output: the directory for the new bundle, which must not be there.
        heads: gqa, or mqa for one key head; the name that the attention goes by.
        num_kv_heads: key and value heads G to pool to, dividing those that are there.
        slots: of encoder, decoder and cross, those whose heads are pooled.
        uptrain_steps: optimizer steps of further training before it is written.
        scores: whether it is scored before and after, where the data can be read.

    Raises:
        UserError: for heads that are not said, or twice.
    """

    output: str
    heads: Literal["gqa", "mqa"] = "gqa"
    num_kv_heads: Count | None = None
    slots: list[str] = field(default_factory=lambda: list(SLOTS))
    uptrain_steps: CountOrNone = 0
    scores: bool = True

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
        bundle = self.load(self.generation)
        if isinstance(bundle, SpanBundle):
            raise UserError(
                f"{self.bundle} answers questions by spans; convert takes an encoder-decoder"
            )
        converted = self._pooled(bundle)
        texts = self._texts(bundle)
        reports = {"before": self._report(bundle, texts), "after": self._report(converted, texts)}
        if self.uptrain_steps:
            from seqattn.runs.uptraining import uptrain  # Lightning takes seconds to import

            uptrain(converted, self.data, self.uptrain_steps, self.device, self.cache_dir)
            reports["uptrained"] = self._report(converted, texts)
        last = list(reports.values())[-1]
        scores = {"converted from": bundle.config.get("name"), **named(last.scores, self.split)}
        write_bundle(output, converted.config, converted.model.cpu(), converted.tokenizer, scores)
        self._print(reports)
        return output

    def _pooled(self, bundle: TextBundle) -> TextBundle:
        """The bundle with so many key and value heads, each the mean of those it stands for."""
        if not isinstance(bundle.model, Transformer):
            raise UserError(
                f"{bundle.path} holds a {type(bundle.model).__name__}, which has no key heads to "
                "pool; convert takes a Transformer"
            )
        config = self._grouped(bundle.config)
        tokenizer = bundle.tokenizer
        sizes = Vocabularies(tokenizer.source_size, tokenizer.target_size, tokenizer.joint)
        model: Any = Architecture.of(config).build(sizes)
        pool_key_heads(bundle.model, model)
        return replace(bundle, model=model.to(self.device).eval(), config=config, scores={})

    def _grouped(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration with so many key heads in the attentions of the slots."""
        if not self.slots or not set(self.slots) <= set(SLOTS):
            raise UserError(f"slots must be some of {', '.join(SLOTS)}, got {self.slots}")
        shared, count = config["attention"], self.num_kv_heads or 1
        own = {slot: config.get(f"{slot}_attention") for slot in SLOTS}
        if set(self.slots) == set(SLOTS) and not any(own.values()):
            choices = {**config.get("choices", {}), "attention": self.heads}
            return {**config, "attention": _fewer(shared, count, "self-"), "choices": choices}
        usual = {"encoder": shared, "decoder": shared, "cross": _cross(shared)}
        pooled = {
            f"{slot}_attention": _fewer(own[slot] or usual[slot], count, f"{slot} ")
            for slot in self.slots
        }
        return {**config, **pooled}

    def _texts(self, bundle: TextBundle) -> Texts | None:
        """What to score on; None where nothing is asked for, or it cannot be read."""
        if not self.scores:
            return None
        try:
            return self.read_texts(bundle)
        except (UserError, OSError) as error:
            print(f"not scored: {error}", file=sys.stderr)
            return None

    def _report(self, bundle: TextBundle, texts: Texts | None) -> Report:
        scores: list[TextScore] = []
        if texts is not None:
            outputs = outputs_for(bundle, self.generation, texts.sources)
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
        print_table(f"{self.bundle} as {self.heads}", rows, list(reports), notes)


def _cross(node: Any) -> Any:
    """The node of the cross-attention that stands beside a self-attention."""
    if isinstance(node, list):
        return [_cross(layer) for layer in node]
    return describe(cross_default(build(node, "attention")), "cross_attention")


def _fewer(node: Any, num_kv_heads: int, where: str) -> Any:
    """A node with so many key heads, which must divide what it has."""
    if isinstance(node, list):
        return [_fewer(layer, num_kv_heads, where) for layer in node]
    kind = import_path(node["_target_"])
    if not isinstance(kind, type) or not issubclass(kind, MultiHeadAttention):
        raise UserError(
            f"the {where}attention is a {kind.__name__}, which has no key heads to pool; name the "
            "slots that have, such as slots=[cross]"
        )
    now = node["num_kv_heads"]
    if now % num_kv_heads:
        raise UserError(
            f"num_kv_heads must divide the {where}attention's key heads ({now}), got {num_kv_heads}"
        )
    return {**node, "num_kv_heads": num_kv_heads}


@torch.inference_mode()
def _cache_bytes(model: Any) -> tuple[int, int]:
    """Bytes that a target token adds to the cache, and a source token's keys and values; measured.

    A cache that is bounded grows by this until it is full.
    """
    device = next(model.parameters()).device
    source, token = (torch.full((1, 1), mark, device=device) for mark in (EOS, BOS))
    state = model.start(model.encode(source))
    model.features(token, state)
    first = state.nbytes
    model.features(token, state)
    kept = sum(part.numel() * part.element_size() for pair in state.source for part in pair)
    return state.nbytes - first, kept
