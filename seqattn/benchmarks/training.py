"""Training speed: our step against plain hand-written loops, on the same real batches.

In every round the contestants take turns on the same few batches. Ratios are taken within a round;
their median is given with the least and the largest. This process keeps freed memory as our runs
do; that choice holds for a whole process and cannot be taken back, so the plain loop as any script
has it, under the system's allocator, runs in a process beside it. A process that waits uses no
processor.

All contestants have as many parameters, the same vocabulary, batches, label smoothing, clipping
and dropout probability. What differs in the work: `torch.nn.Transformer` drops attention weights
and the inside of feed-forward sublayers as well, which its one `dropout` argument turns on, and
the plain loss is taken over padded positions' logits too.
"""

import multiprocessing
import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Literal, NamedTuple, get_args

import torch
from annotated_types import MinLen, MultipleOf

from seqattn.benchmarks.corpus import Corpus
from seqattn.benchmarks.loops import LightningLoop, OwnLoop, PlainLoop, TrainingLoop
from seqattn.benchmarks.recurrent_models import (
    AlignmentName,
    JoeyRecurrent,
    RecurrentShape,
    TextbookRecurrent,
    has_joey,
    own_recurrent,
)
from seqattn.benchmarks.suite import (
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
from seqattn.benchmarks.transformer_models import PlainTransformer, Shape, own_transformer
from seqattn.checking import Count, Dropout, Width, checked
from seqattn.data.batch import Batch
from seqattn.ops.memory import keep_freed_memory

Batches = Sequence[Batch]
Precision = Literal["fp32", "bf16-mixed"]


@dataclass(frozen=True, kw_only=True)
class TrainingRounds(Suite):
    """What suites that train have in common.

    Args:
        corpus: gives the batches.
        max_tokens: batch sizes to measure, in padded tokens.
        steps: optimizer steps of a contestant in a round.
        rounds: that count; one more warms up.
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
        """The tables of batches of one size (in words), as many as the steps of all rounds."""

    def turns(
        self, train: Mapping[Name, Callable[[Batches], Sample]], batches: Batches
    ) -> dict[Name, list[Sample]]:
        """Samples of the rounds that count; contestants train in turns, on the same batches."""
        starts = range(0, len(batches), self.steps)
        samples = take_turns(train, [batches[n : n + self.steps] for n in starts])
        return {name: found[1:] for name, found in samples.items()}


class Turn(NamedTuple):
    """A contestant: its loop, its precision, and the allocator settings of its process."""

    loop: str
    precision: Precision = "fp32"
    allocator: str = "keeps"


_WRITTEN = Turn("plain", allocator="default")


@checked
@dataclass(frozen=True, kw_only=True)
class TrainingSuite(TrainingRounds):
    """Training speed against `torch.nn.Transformer` in a plain loop.

    Args:
        shape: from the size of the vocabulary to the shape of every contestant.
        precisions: of the contestants; fp32 is always among them.
        profile: show where our own time goes in place of the contest.
    """

    shape: Callable[[int], Shape] = Shape
    precisions: Annotated[Sequence[Precision], MinLen(1)] = ("fp32", "bf16-mixed")
    profile: bool = False

    def contest(self, size: str, batches: Batches, vocabulary: int) -> Iterator[Figures]:
        shape = self.shape(vocabulary)
        if self.profile:
            for precision in self.precisions:
                loop = make_loop(Turn("seqattn", precision), shape, self.seed)
                loop.run(batches[:1])
                title = f"Our training step, {size}, {precision}"
                yield profiled(title, partial(loop.run, batches[1:]), "step", len(batches) - 1)
            return
        turns = [_WRITTEN, Turn("plain"), Turn("seqattn"), Turn("seqattn under Lightning")]
        if "bf16-mixed" in self.precisions:
            turns += [Turn(loop, "bf16-mixed") for loop in ("plain", "seqattn")]
        loops = {turn: make_loop(turn, shape, self.seed) for turn in turns}
        if len({loop.parameters for loop in loops.values()}) > 1:
            raise ValueError("the contestants must have as many parameters")
        # spawned: a forked process would inherit this one's allocator settings and its threads
        spawn, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
        with ProcessPoolExecutor(1, spawn, torch.set_num_threads, (threads,)) as beside:

            def train_beside(part: Batches) -> Sample:
                # pickled here: handing tensors over through shared memory needs room for it
                return beside.submit(_train, shape, self.seed, pickle.dumps(part)).result()

            train = {turn: loop.run for turn, loop in loops.items()} | {_WRITTEN: train_beside}
            samples = self.turns(train, batches)
        rows = [_row(turn, loops[turn].parameters, samples) for turn in turns]
        yield Figures(f"Training, batches of {size}, V {vocabulary:,}", rows)


def make_loop(turn: Turn, shape: Shape, seed: int) -> TrainingLoop:
    """A contestant with random weights."""
    torch.manual_seed(seed)
    if turn.loop == "plain":
        return PlainLoop(PlainTransformer(shape), turn.precision)
    kind = OwnLoop if turn.loop == "seqattn" else LightningLoop
    return kind(own_transformer(shape), turn.precision)


_kept_loop = cache(make_loop)


def _train(shape: Shape, seed: int, batches: bytes) -> Sample:
    return _kept_loop(_WRITTEN, shape, seed).run(pickle.loads(batches))


def _row(turn: Turn, parameters: int, samples: Mapping[Turn, list[Sample]]) -> Row:
    own, same = samples[turn], samples[Turn("plain", allocator=turn.allocator)]
    return {
        **turn._asdict(),
        "parameters": parameters,
        "target tokens/s": rates(own),
        "x plain as written": ratios(own, samples[_WRITTEN]),
        "x plain, same allocator": ratios(own, same),
        "the same, CPU time": ratios(own, same, cpu=True),  # a busy machine disturbs it less
    }


@checked
@dataclass(frozen=True, kw_only=True)
class RecurrentSuite(TrainingRounds):
    """Training speed of recurrent models against a textbook's loop and Joey NMT's, in one process.

    Args:
        alignments: of the models, Luong's each with and without input feeding.
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
                "the same, CPU time": ratios(own, samples["textbook"], cpu=True),
                "x Joey NMT": None if joey is None else ratios(own, joey),
            }
            for name, own in samples.items()
        ]
