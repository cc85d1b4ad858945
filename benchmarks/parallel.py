"""Decoders over a complete target at once, as in training, and token by token, as in decoding."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.attention_work import is_attention
from benchmarks.attentions import Length
from benchmarks.suite import Figures, Row, Sample, Spread, Suite, ratios, take_turns, timed
from seqattn.checking import Count, Depth, Width
from seqattn.models.base import Memory, Seq2SeqModel
from seqattn.models.recurrent import RecurrentConfig
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.ops.memory import keep_freed_memory
from seqattn.positions import SinusoidalPosition
from seqattn.settings.assembly import cross_default
from seqattn.tokens import RESERVED

_VOCABULARY = 1000


@dataclass(frozen=True, kw_only=True)
class ParallelSuite(Suite):
    """Time of a decoder's forward pass, over all tokens at once and over one after the other.

    Args:
        attentions: factories by name, of Transformers and of recurrent models.
        lengths: tokens of source and target.
        dim: width.
        layers: layers of encoder and decoder.
        batch_size: sentences.
        rounds: measured rounds; one more warms up.
    """

    attentions: Mapping[str, Callable[..., Any]]
    lengths: list[Length]
    dim: Width = 128
    layers: Depth = 2
    batch_size: Count = 8
    rounds: Count = 3

    def measure(self) -> Iterator[Figures]:
        keep_freed_memory()
        torch.manual_seed(self.seed)
        models = {name: self._model(make).eval() for name, make in self.attentions.items()}
        rows: list[Row] = []
        for length in self.lengths:
            ids = torch.randint(RESERVED, _VOCABULARY, (self.batch_size, length))
            with torch.no_grad():
                works = {
                    (name, way): partial(_decoded, model, model.encode(ids), ids, way)
                    for name, model in models.items()
                    for way in (length, 1)
                }
                samples = take_turns(works, range(self.rounds + 1))
            for name in models:
                at_once, steps = (samples[name, way][1:] for way in (length, 1))
                rows.append(
                    {
                        "attention": name,
                        "tokens": length,
                        "at once (ms)": Spread.of([one.seconds * 1e3 for one in at_once]),
                        "steps (ms)": Spread.of([one.seconds * 1e3 for one in steps]),
                        "steps / at once": ratios(at_once, steps),
                    }
                )
        yield Figures("Decoder, all tokens at once and step by step", rows)

    def _model(self, make: Callable[..., Any]) -> Seq2SeqModel:
        size = self.layers
        if not is_attention(make):
            recurrent = RecurrentConfig(dim=self.dim, encoder_layers=size, decoder_layers=size)
            return recurrent.build(_VOCABULARY, _VOCABULARY, True, make)
        transformer = TransformerConfig(
            dim=self.dim, ffn_dim=2 * self.dim, encoder_layers=size, decoder_layers=size
        )
        slots = Slots(
            [make] * size, [make] * size, [cross_default(make)] * size, SinusoidalPosition
        )
        return transformer.build(_VOCABULARY, _VOCABULARY, True, slots)


def _decoded(model: Seq2SeqModel, memory: Memory, ids: Tensor, way: int, _: int) -> Sample:
    """Time the logits of target tokens (B, T), of which a call gets `way`."""
    state = model.start(memory, cached=way < ids.shape[1])

    def work() -> int:
        for part in ids.split(way, dim=1):
            model.decode(part, state)
        return ids.numel()

    return timed(work)
