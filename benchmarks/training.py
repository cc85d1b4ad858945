"""Training speed: our step against plain loops and other toolkits, on the same real batches.

In every round the contestants take turns on the same few batches, each in its own process;
waiting processes are idle. Ratios are computed within a round; their median is reported with
minimum and maximum. Our runs keep freed memory; the others run with their default allocator, and
with freed memory kept.

All contestants have the same number of parameters (HF Marian lacks two norms), vocabulary, batches,
label smoothing, clipping and dropout probability. Differences in the work: `torch.nn.Transformer`
and Joey NMT apply dropout in more places than embeddings and residual branches, and a plain loss
also computes the logits of padding.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, get_args

import torch
from annotated_types import MinLen, MultipleOf
from torch import Tensor

from benchmarks.arithmetic import at_full_rate, forward_work
from benchmarks.contestants import (
    LIMIT,
    Allocator,
    Contestant,
    ContestantName,
    Entry,
    Setting,
    compared,
    entries,
    started,
)
from benchmarks.corpus import Corpus
from benchmarks.loops import OwnLoop, PlainLoop, TrainingLoop
from benchmarks.recurrent_models import (
    AlignmentName,
    JoeyRecurrent,
    RecurrentShape,
    TextbookRecurrent,
    has_joey,
    own_recurrent,
)
from benchmarks.suite import (
    Figures,
    Name,
    Row,
    Sample,
    Suite,
    profiled,
    rates,
    ratios,
    take_turns,
)
from benchmarks.transformer_models import Shape, own_transformer
from seqattn.checking import Count, Dropout, Width
from seqattn.data.batch import Batch
from seqattn.ops.memory import keep_freed_memory
from seqattn.tokens import PAD

Batches = Sequence[Batch]


@dataclass(frozen=True, kw_only=True)
class TrainingRounds(Suite):
    """Base of suites that train.

    Args:
        corpus: corpus of the batches.
        max_tokens: batch sizes to measure, in padded tokens.
        steps: optimizer steps of a contestant in a round.
        rounds: measured rounds; one more warms up.
    """

    corpus: Corpus
    max_tokens: Annotated[Sequence[Count], MinLen(1)] = (2048, 4096)
    steps: Count = 4
    rounds: Count = 8

    def measure(self) -> Iterator[Figures]:
        for max_tokens in self.max_tokens:
            wanted = self.steps * (self.rounds + 1)
            batches, vocabulary = self.corpus.batches(max_tokens, wanted)
            keep_freed_memory()
            yield from self.contest(f"{max_tokens:,} tokens", batches, vocabulary)

    @abstractmethod
    def contest(self, size: str, batches: Batches, vocabulary: int) -> Iterator[Figures]:
        """Yield the tables for one batch size (in words), over all rounds."""

    def turns(
        self, train: Mapping[Name, Callable[[Batches], Sample]], batches: Batches
    ) -> dict[Name, list[Sample]]:
        """Return samples of the measured rounds; contestants take turns on the same batches."""
        starts = range(0, len(batches), self.steps)
        samples = take_turns(train, [batches[n : n + self.steps] for n in starts])
        return {name: rounds[1:] for name, rounds in samples.items()}


@dataclass(frozen=True, kw_only=True)
class TrainingSuite(TrainingRounds):
    """Training speed against `torch.nn.Transformer` in a plain loop and against other toolkits.

    Args:
        shape: function from vocabulary size to the shape of every contestant.
        contestants: names; those that are not installed are skipped.
        precisions: precisions of the contestants.
        allocators: allocators of the others' processes: default, or keeps to keep freed memory.
        peer_python: Python with Joey NMT and Eole; None for this one.
        profile: profile our own training instead of comparing.
    """

    shape: Callable[[int], Shape] = Shape
    contestants: Sequence[ContestantName] = get_args(ContestantName)
    precisions: Annotated[Sequence[Literal["fp32", "bf16"]], MinLen(1)] = ("fp32", "bf16")
    allocators: Annotated[Sequence[Allocator], MinLen(1)] = ("default", "keeps")
    peer_python: str | None = None
    profile: bool = False

    def contest(self, size: str, batches: Batches, vocabulary: int) -> Iterator[Figures]:
        shape, threads = self.shape(vocabulary), torch.get_num_threads()
        if self.profile:
            for precision in self.precisions:
                torch.manual_seed(self.seed)
                loop = OwnLoop(own_transformer(shape), precision)
                loop.run(batches[:1])
                title = f"Our training step, {size}, {precision}"
                yield profiled(title, partial(loop.run, batches[1:]), "step", len(batches) - 1)
            return
        wanted = entries("training", self.contestants, self.precisions, self.allocators)
        setting = Setting(shape, threads, seed=self.seed, peer_python=self.peer_python)
        with started(wanted, setting) as running:
            train = {entry: partial(_train, one) for entry, one in running.items()}
            limits = {
                Entry(LIMIT, kind): partial(_at_full_rate, shape, kind) for kind in self.precisions
            }
            samples = self.turns({**train, **limits}, batches)
            rows = compared(running, samples, "target tokens")
        yield Figures(f"Training, batches of {size}, V {vocabulary:,}, {threads} threads", rows)


def _train(contestant: Contestant, batches: Batches) -> Sample:
    pairs = [(_rows(batch.source), _rows(batch.target_output)) for batch in batches]
    return Sample(*contestant.ask("train", pairs))


def _at_full_rate(shape: Shape, precision: str, batches: Batches) -> Sample:
    sides = [(batch.source, batch.target_output) for batch in batches]
    lengths = [[(rows != PAD).sum(dim=1).tolist() for rows in pair] for pair in sides]
    work = 3 * sum(forward_work(shape, sources, targets) for sources, targets in lengths)
    return at_full_rate(work, precision, sum(batch.target_tokens for batch in batches))


def _rows(padded: Tensor) -> list[list[int]]:
    return [row[row != PAD].tolist() for row in padded]


@dataclass(frozen=True, kw_only=True)
class RecurrentSuite(TrainingRounds):
    """Training speed of recurrent models against a textbook loop and Joey NMT's, in one process.

    Args:
        alignments: alignments of the models, Luong's with and without input feeding.
        dim: width D of everything; even.
        dropout: share dropped in training.
    """

    alignments: Annotated[Sequence[AlignmentName], MinLen(1)] = get_args(AlignmentName)
    dim: Annotated[Width, MultipleOf(2)] = 256
    dropout: Dropout = 0.3

    def contest(self, size: str, batches: Batches, vocabulary: int) -> Iterator[Figures]:
        rows: list[Row] = []
        for name in self.alignments:
            for feeding in (False,) if name == "bahdanau" else (False, True):
                shape = RecurrentShape(vocabulary, self.dim, name, feeding, self.dropout)
                rows += self._rows(shape, batches)
        yield Figures(f"Training recurrent models, batches of {size}", rows)

    def _rows(self, shape: RecurrentShape, batches: Batches) -> list[Row]:
        torch.manual_seed(self.seed)
        loops: dict[str, TrainingLoop] = {"textbook": PlainLoop(TextbookRecurrent(shape))}
        if has_joey(shape):
            loops["Joey NMT"] = PlainLoop(JoeyRecurrent(shape))
        loops["seqattn"] = OwnLoop(own_recurrent(shape))
        samples = self.turns({name: loop.run for name, loop in loops.items()}, batches)
        joey = samples.get("Joey NMT")
        return [
            {
                "model": shape.name,
                "loop": name,
                "parameters": loops[name].parameters,
                "target tokens/s": rates(own),
                "x textbook": ratios(own, samples["textbook"]),
                "x textbook (CPU time)": ratios(own, samples["textbook"], cpu=True),
                "x Joey NMT": None if joey is None else ratios(own, joey),
            }
            for name, own in samples.items()
        ]
