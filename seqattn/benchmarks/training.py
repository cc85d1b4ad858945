"""Training speed: our step against a plain hand-written loop, on the same real batches.

How it is measured. Two worker processes stand side by side, one with the system's allocator as
any script has it, one that keeps freed memory as our runs do (that choice holds for a whole
process and cannot be taken back, hence two). In every round the contestants take turns on the
same few batches: the plain loop in the first process, then in the second process the plain loop,
our step, and our step under Lightning. A worker that waits uses no processor. Ratios are taken
within a round; their median is given with the least and the largest.

All contestants have as many parameters, the same vocabulary, batches, optimizer, label smoothing,
clipping and dropout probability. What differs in the work: `torch.nn.Transformer` drops attention
weights and the inside of feed-forward sublayers as well, which its one `dropout` argument turns
on, and its loss is taken over padded positions' logits too.
"""

import multiprocessing
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import torch

from seqattn.benchmarks.measure import Sample, Spread, rates, ratios
from seqattn.benchmarks.own import OwnRun, OwnStep
from seqattn.benchmarks.plain import PlainLoop
from seqattn.benchmarks.shape import Shape
from seqattn.data.batch import Batch
from seqattn.errors import UserError
from seqattn.training.memory import keep_freed_memory

PRECISIONS = ("32", "bf16-mixed")


@dataclass(frozen=True)
class TrainingPlan:
    """What to measure.

    Args:
        shape: of every contestant.
        batches: steps * (rounds + 1) of them; the first `steps` warm up and are not counted.
        steps: optimizer steps of a contestant's turn.
        precisions: of 32 and bf16-mixed.
        threads: of each worker; None leaves it to torch.
        seed: of the weights.

    Raises:
        UserError: where there are not enough batches for a round, or a precision is unknown.
    """

    shape: Shape
    batches: tuple[Batch, ...]
    steps: int = 4
    precisions: tuple[str, ...] = PRECISIONS
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or len(self.batches) < 2 * self.steps:
            raise UserError(
                f"a warm-up and a round of {self.steps} steps need {2 * self.steps} batches, got "
                f"{len(self.batches)}; take fewer steps, smaller batches or more data"
            )
        wrong = [p for p in self.precisions if p not in PRECISIONS]
        if wrong:
            raise UserError(f"precisions must be of {', '.join(PRECISIONS)}, got {wrong[0]}")

    def rounds(self) -> list[tuple[Batch, ...]]:
        """The batches of each turn, the warm-up's first."""
        last = len(self.batches) - self.steps
        starts = range(0, last + 1, self.steps)
        return [self.batches[start : start + self.steps] for start in starts]


class Contestant(Protocol):
    """Something that trains."""

    parameters: int

    def run(self, batches: Sequence[Batch]) -> Sample:
        """Trains on the batches, a step each."""


class Turn(NamedTuple):
    """Who runs where: a loop, its precision, and whether its process keeps freed memory."""

    loop: str
    precision: str
    keeps_memory: bool

    def make(self, shape: Shape) -> Contestant:
        """The contestant."""
        if self.loop == "plain":
            return PlainLoop(shape, self.precision)
        kind = OwnStep if self.loop == "seqattn" else OwnRun
        return kind(shape, self.precision)


class Row(NamedTuple):
    """What one contestant came to."""

    turn: Turn
    parameters: int
    tokens_per_second: Spread
    over_plain: Spread
    """Times the speed of the plain float32 loop as anyone would write it."""
    over_plain_same_memory: Spread
    """Times the speed of the plain float32 loop under the same allocator settings."""
    over_plain_same_memory_cpu: Spread
    """The same by CPU time, which a busy machine disturbs less; one thread only."""


def turns(precisions: Sequence[str]) -> list[Turn]:
    """In the order in which a round goes through them."""
    found = [Turn("plain", "32", False)]
    found += [Turn(loop, "32", True) for loop in ("plain", "seqattn", "seqattn under Lightning")]
    if "bf16-mixed" in precisions:
        found += [Turn(loop, "bf16-mixed", True) for loop in ("plain", "seqattn")]
    return found


def measure_training(plan: TrainingPlan) -> list[Row]:
    """Runs the contest.

    Raises:
        ValueError: where the contestants differ in parameters, so are not of one shape.
        RuntimeError: where a worker ends early.
    """
    order = turns(plan.precisions)
    samples: dict[Turn, list[Sample]] = {turn: [] for turn in order}
    with Worker(plan, keeps_memory=False) as default, Worker(plan, keeps_memory=True) as keeping:
        workers = {False: default, True: keeping}
        parameters = {turn: workers[turn.keeps_memory].enter(turn) for turn in order}
        if len(set(parameters.values())) > 1:
            raise ValueError(f"the contestants must have as many parameters, got {parameters}")
        for number in range(len(plan.rounds())):
            for turn in order:
                samples[turn].append(workers[turn.keeps_memory].run(turn, number))
    counted = {turn: found[1:] for turn, found in samples.items()}
    return [_row(turn, parameters[turn], counted) for turn in order]


def _row(turn: Turn, parameters: int, samples: Mapping[Turn, list[Sample]]) -> Row:
    own = samples[turn]
    written = samples[Turn("plain", "32", False)]
    same = samples[Turn("plain", "32", turn.keeps_memory)]
    by_cpu = ratios(own, same, cpu=True)
    return Row(turn, parameters, rates(own), ratios(own, written), ratios(own, same), by_cpu)


class Worker:
    """A process that trains when it is told to.

    Args:
        plan: what to measure.
        keeps_memory: whether it keeps freed memory.
    """

    def __init__(self, plan: TrainingPlan, keeps_memory: bool) -> None:
        # spawned: a forked process would inherit the parent's allocator settings and its threads;
        # pickled here: handing tensors over through shared memory needs room for it
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, pickle.dumps(plan), keeps_memory)
        self._process = context.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def enter(self, turn: Turn) -> int:
        """Makes a contestant; gives its parameters."""
        parameters: int = self._ask((turn, None))
        return parameters

    def run(self, turn: Turn, number: int) -> Sample:
        """A contestant's turn in a round."""
        sample: Sample = self._ask((turn, number))
        return sample

    def _ask(self, question: tuple[Turn, int | None]) -> Any:
        try:
            self._connection.send(question)
            return self._connection.recv()
        except (EOFError, BrokenPipeError) as error:
            raise RuntimeError("a worker of the benchmark ended early, see above") from error

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()  # the worker reads the end and ends
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.terminate()


def _work(connection: Connection, pickled: bytes, keeps_memory: bool) -> None:
    """The life of a worker."""
    plan: TrainingPlan = pickle.loads(pickled)
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    if keeps_memory:
        keep_freed_memory()
    rounds = plan.rounds()
    contestants: dict[Turn, Contestant] = {}
    while True:
        try:
            turn, number = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if number is None:
            torch.manual_seed(plan.seed)
            contestants[turn] = turn.make(plan.shape)
            connection.send(contestants[turn].parameters)
        else:
            connection.send(contestants[turn].run(rounds[number]))
