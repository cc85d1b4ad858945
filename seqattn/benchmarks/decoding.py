"""Decoding speed: our greedy and beam search against Hugging Face `generate`.

The sources are sorted by length and cut into batches, and every output is forced to the same
number of tokens, so that both generate equally many whatever their random weights are. Batch by
batch the two take turns in one process, and a ratio is taken on every batch; their median is given
with the least and the largest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Ge, Le, MinLen
from torch import Tensor, nn

from seqattn.benchmarks.corpus import Corpus, Rows
from seqattn.benchmarks.suite import (
    Figures,
    Row,
    Sample,
    Suite,
    profiled,
    ratios,
    take_turns,
    timed,
)
from seqattn.benchmarks.transformer_models import (
    Shape,
    marian_model,
    own_transformer,
    parameters_of,
)
from seqattn.checking import Count, CountOrNone, checked
from seqattn.data.batch import pad_rows
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit
from seqattn.models.base import Seq2SeqModel
from seqattn.ops.memory import keep_freed_memory
from seqattn.tokens import EOS, PAD

Decode = Callable[[Rows], int]
"""From the ids of a batch to how many tokens were generated for it."""


@checked
@dataclass(frozen=True, kw_only=True)
class DecodingSuite(Suite):
    """Decoding speed against `MarianMTModel.generate`.

    Args:
        corpus: gives the sources.
        shape: from the size of the vocabulary to the shape of both models.
        sentences: the first so many of the test split; 0 for all.
        beams: beam sizes; 1 is greedy search.
        length: tokens of every output.
        batch_size: sentences in a batch.
        keep_memory: both keep freed memory, as our training runs do.
        profile: show where our own time goes in place of the contest.
    """

    corpus: Corpus
    shape: Callable[[int], Shape] = Shape
    sentences: CountOrNone = 200
    beams: Annotated[Sequence[Annotated[int, Ge(1), Le(1000)]], MinLen(1)] = (1, 5)
    length: Annotated[int, Ge(1), Le(512)] = 32
    batch_size: Count = 64
    keep_memory: bool = False
    profile: bool = False

    def measure(self) -> Iterator[Figures]:
        sources, vocabulary = self.corpus.sentences(self.sentences)
        ordered, size = sorted(sources, key=len, reverse=True), self.batch_size
        batches = [ordered[n : n + size] for n in range(0, len(ordered), size)]
        if len(batches) < 2:
            got = f"got {len(ordered)}: one batch warms up"
            raise UserError(f"sentences must be more than batch_size ({size}), {got}")
        if self.keep_memory:
            keep_freed_memory()
        torch.manual_seed(self.seed)
        own = own_transformer(self.shape(vocabulary)).eval()
        if self.profile:
            for beams in self.beams:
                decode = decoder(own, beams, self.length)
                decode(batches[-1])
                work = partial(decode, batches[len(batches) // 2])
                yield profiled(f"Our search with {beams} beams", work, "position", self.length)
            return
        marian = marian_model(self.shape(vocabulary))
        rows = [self._row(own, marian, beams, batches) for beams in self.beams]
        title = f"Decoding, {self.length} tokens each, against MarianMTModel.generate"
        yield Figures(title, rows)

    def _row(
        self, own: Seq2SeqModel, marian: nn.Module, beams: int, batches: Sequence[Rows]
    ) -> Row:
        decoders: dict[str, Decode] = {
            "": decoder(own, beams, self.length),
            "their ": partial(marian_decode, marian, beams=beams, length=self.length),
        }
        for decode in decoders.values():
            decode(batches[-1])
        turns = {name: _turn(decode) for name, decode in decoders.items()}
        samples = take_turns(turns, batches)
        tokens = {
            name: sum(sample.units for sample in found) / sum(sample.seconds for sample in found)
            for name, found in samples.items()
        }
        return {
            "search": "greedy" if beams == 1 else f"beam {beams}",
            "sentences": sum(map(len, batches)),
            **{f"{name}sentences/s": rate / self.length for name, rate in tokens.items()},
            **{f"{name}tokens/s": rate for name, rate in tokens.items()},
            "ratio": ratios(samples[""], samples["their "]),
            "by CPU time": ratios(samples[""], samples["their "], cpu=True),
            "parameters": parameters_of(own),
            "their parameters": parameters_of(marian),
        }


def _turn(decode: Decode) -> Callable[[Rows], Sample]:
    return lambda rows: timed(lambda: decode(rows))


def decoder(model: Seq2SeqModel, beams: int, length: int) -> Decode:
    """Our search, every output forced to `length` tokens: from a batch to how many it made."""
    limit = LengthLimit(ratio=0.0, extra=length, minimum=length)
    search = GreedySearch(limit) if beams == 1 else BeamSearch(limit, beam_size=beams)
    generator = Generator(model, search, batch_size=0)
    return lambda rows: sum(len(found[0].ids) for found in generator.generate(rows))


def marian_decode(model: nn.Module, rows: Rows, beams: int, length: int) -> int:
    """Generates exactly `length` tokens for each source with `generate`; returns their number."""
    ids = torch.from_numpy(pad_rows(rows))
    out: Tensor = model.generate(  # type: ignore[operator]
        ids, attention_mask=(ids != PAD).long(), num_beams=beams, do_sample=False,
        min_new_tokens=length, max_new_tokens=length, length_penalty=1.0,
    )  # fmt: skip
    new = out[:, 1:]  # what comes first is the begin mark
    return int(((new != PAD) & (new != EOS)).sum())
