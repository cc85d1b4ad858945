"""Decoding speed: our greedy and beam search against Hugging Face `generate`.

How it is measured. The sources are sorted by length and cut into batches, and every output is
forced to the same number of tokens, so that both generate equally many whatever their random
weights say. Batch by batch the two take turns in one process, the first to go changing each time,
and a ratio is taken on every batch; their median is given with the least and the largest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from seqattn.benchmarks.marian import marian_decode, marian_model
from seqattn.benchmarks.measure import Sample, Spread, rates, ratios, timed
from seqattn.benchmarks.profile import Operation, profiled
from seqattn.benchmarks.shape import Shape, parameters_of, seqattn_model
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit
from seqattn.models.base import Seq2SeqModel

Rows = list[list[int]]


@dataclass(frozen=True)
class DecodingPlan:
    """What to measure.

    Args:
        shape: of both models.
        sources: ids of each source, end included.
        beams: beam sizes; 1 is greedy search.
        length: tokens of every output.
        batch_size: sentences in a batch.
        seed: of the weights.

    Raises:
        UserError: for fewer than two batches, or a size below 1.
    """

    shape: Shape
    sources: tuple[tuple[int, ...], ...]
    beams: tuple[int, ...] = (1, 5)
    length: int = 32
    batch_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.length, self.batch_size, *self.beams) < 1:
            raise UserError("beam, length and batch_size must be at least 1")
        if len(self.sources) <= self.batch_size:
            raise UserError(
                f"sentences must be more than batch_size ({self.batch_size}), got "
                f"{len(self.sources)}: one batch warms up"
            )

    def batches(self) -> list[Rows]:
        """Sources of alike length, the longest first."""
        ordered = sorted((list(source) for source in self.sources), key=len, reverse=True)
        starts = range(0, len(ordered), self.batch_size)
        return [ordered[start : start + self.batch_size] for start in starts]


class Row(NamedTuple):
    """What one search came to."""

    beams: int
    sentences: int
    parameters: int
    their_parameters: int
    sentences_per_second: Spread
    their_sentences_per_second: Spread
    tokens_per_second: float
    """Generated tokens a second, over all batches."""
    their_tokens_per_second: float
    ratio: Spread
    """Times their speed, by time on the wall."""
    ratio_cpu: Spread
    """Times their speed, by CPU time, which a busy machine disturbs less."""


def generator_of(model: Seq2SeqModel, beams: int, length: int) -> Generator:
    """Our search, every output forced to `length` tokens."""
    limit = LengthLimit(ratio=0.0, extra=length, minimum=length)
    search = GreedySearch(limit) if beams == 1 else BeamSearch(limit, beam_size=beams)
    return Generator(model, search, batch_size=0)


def decode(generator: Generator, rows: Rows) -> int:
    """Generates for one batch; gives the number of tokens."""
    return sum(len(found[0].ids) for found in generator.generate(rows))


def measure_decoding(plan: DecodingPlan) -> list[Row]:
    """Runs the contest, one search after the other.

    Raises:
        UserError: where `transformers` is not installed.
        ValueError: where an output has another length than it must.
    """
    torch.manual_seed(plan.seed)
    theirs = marian_model(plan.shape)
    ours = seqattn_model(plan.shape).eval()
    return [_row(plan, beams, ours, theirs) for beams in plan.beams]


def _row(plan: DecodingPlan, beams: int, ours: Seq2SeqModel, theirs: nn.Module) -> Row:
    generator = generator_of(ours, beams, plan.length)

    def own(rows: Rows) -> Sample:
        return checked(lambda: decode(generator, rows), rows)

    def other(rows: Rows) -> Sample:
        return checked(lambda: marian_decode(theirs, rows, beams, plan.length), rows)

    def checked(work: Callable[[], int], rows: Rows) -> Sample:
        sample = timed(work)
        if sample.units != plan.length * len(rows):
            raise ValueError(f"{plan.length * len(rows)} tokens were due, got {sample.units}")
        return sample._replace(units=len(rows))

    batches = plan.batches()
    own(batches[-1])
    other(batches[-1])
    mine: list[Sample] = []
    their: list[Sample] = []
    for number, rows in enumerate(batches):
        for contestant, found in ((own, mine), (other, their))[:: 1 if number % 2 else -1]:
            found.append(contestant(rows))
    return Row(
        beams,
        len(plan.sources),
        parameters_of(ours),
        parameters_of(theirs),
        rates(mine),
        rates(their),
        _tokens_per_second(mine, plan.length),
        _tokens_per_second(their, plan.length),
        ratios(mine, their),
        ratios(mine, their, cpu=True),
    )


def _tokens_per_second(samples: Sequence[Sample], length: int) -> float:
    return length * sum(s.units for s in samples) / sum(s.seconds for s in samples)


def profile_decoding(plan: DecodingPlan, beams: int) -> list[Operation]:
    """The operators of our search on the middle batch, dearest first, per generated position."""
    torch.manual_seed(plan.seed)
    generator = generator_of(seqattn_model(plan.shape), beams, plan.length)
    batches = plan.batches()
    decode(generator, batches[-1])
    rows = batches[len(batches) // 2]
    return profiled(lambda: decode(generator, rows), plan.length)
