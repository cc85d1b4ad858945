"""Decoding steps as CUDA graphs, captured once for each size and kept with their model."""

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import cache as once
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from seqattn.attention.base import Attention
from seqattn.attention.observation import Observable
from seqattn.errors import UserError
from seqattn.generation.running import Running
from seqattn.models.base import Memory, Prediction
from seqattn.models.stack import compiling_steps
from seqattn.ops.gpu.graphs import Recorder, may_replay
from seqattn.ops.layers import NarrowWeights
from seqattn.ops.memory import ran_out
from seqattn.screen import say
from seqattn.tokens import BOS, PAD

ROWS, SOURCE, CAPACITY = (32, 128, 256), (32, 64, 128), (64, 256)
"""Sizes of tensors; beyond the last, its multiples."""
_SHARE = 0.2
"""Maximum share of a device's memory for a model's captured steps; beyond, all are dropped."""


class Size(NamedTuple):
    """Sizes of the tensors of captured steps."""

    rows: int  # sentences
    source: int  # tokens of a source
    capacity: int  # tokens of a hypothesis in the caches, all of which each step reads
    steps: int  # tokens of a hypothesis at the end


def at_least(number: int, sizes: Sequence[int]) -> int:
    """Return the smallest of some sizes, or multiple of the last, of at least `number`."""
    fits = (size for size in sizes if size >= number)
    return next(fits, -(-number // sizes[-1]) * sizes[-1])


class CapturedSteps:
    """Fixed tensors of a state, and of hypotheses if a whole step is captured; and its graph.

    If the model's step alone is captured, it stands for the model and its state in a `Stepper`.

    Args:
        stepper: before its first step.
        running: hypotheses of the search; None to capture the model's step alone.
        size: sizes of the tensors.
        recorder: captures the graph.
    """

    key: Hashable = None
    """What they are captured for, see `Captures.take`."""

    def __init__(
        self, stepper: Any, running: Running | None, size: Size, recorder: Recorder
    ) -> None:
        inside, model, memory = copy(stepper), stepper.model, stepper.memory
        ids = memory.ids.new_zeros(size.rows, size.source)
        outputs = memory.outputs.new_zeros(*ids.shape, memory.outputs.shape[2])
        blank = Memory(outputs, ids != PAD, ids)
        self.size = size
        self.state = inside.state = model.start(blank, beams=stepper.beams)
        self.state.fix(size.capacity)
        self.running = None if running is None else running.blank(size.rows, size.steps)
        self._ids = ids.new_full((size.rows * stepper.beams, 1), BOS)
        self._scores = torch.empty(0)

        def call() -> None:
            if self.running is None:
                self._scores = model.log_probabilities(self._ids, self.state).log_probabilities
            else:
                self.running.advance(inside)

        compiles = stepper.search.graph == "compiled"
        if compiles:
            call()  # gives the caches their tensors
        with compiling_steps(model) if compiles else nullcontext():
            [self.replay] = recorder.capture(call)

    def log_probabilities(self, ids: Tensor, *_: Any) -> Prediction:
        """Predict the token after ids (N, 1), valid until the next call, as a model does."""
        self._ids[: len(ids)] = ids
        self.replay()
        return Prediction(self._scores[: len(ids)], None)

    def reorder(self, index: Tensor) -> None:
        """Continue beam k of sentence b from its beam index[b, k]. Args: index: (B', K)."""
        every = torch.arange(index.shape[1], device=index.device).repeat(self.size.rows, 1)
        every[: len(index)] = index
        self.state.reorder(every)

    def keep(self, sentences: Tensor) -> None:
        """Do nothing: `Replayed` has loaded these sentences already."""

    @property
    def nbytes(self) -> int:
        """Bytes of the state's tensors."""
        return sum(x.numel() * x.element_size() for x in self.state.tensors())


class Captures:
    """The captured steps of a model, of several sizes and searches, for any thread to take.

    Args:
        model: the model.
        device: its CUDA device.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._places, self._works = _places(model), True
        self._recorder = Recorder(device)
        self._idle: list[CapturedSteps] = []
        self._narrow: dict[torch.dtype | None, NarrowWeights] = {}

    @classmethod
    def of(cls, stepper: Any) -> "Captures | None":
        """Return those of a stepper's model, or new ones if its weights have moved.

        None if the search, the model or the device does not support them, or has failed to, or if
        weights are observed or sharded.
        """
        model, device = stepper.model, stepper.memory.ids.device
        if not stepper.search.graph or not getattr(stepper.state, "can_fix", False):
            return None
        parts = model.modules()
        observed = any(isinstance(part, Observable) and part.is_observed for part in parts)
        is_sharded = hasattr(model, "unshard")  # an FSDPModule, which waits for other streams
        if observed or is_sharded or stepper.coverage is not None or not may_replay(device):
            return None
        with _lock:
            known = _captures.get(model)
            if known is None or known._places != _places(model):
                known = _captures[model] = cls(model, device)
        for narrow in [*known._narrow.values()]:
            narrow.update()
        return known if known._works else None

    def take(self, stepper: Any, running: Running | None, size: Size) -> CapturedSteps | None:
        """Take captured steps that are not in use, or capture them; None if that fails.

        Args: as in `CapturedSteps`.
        """
        search, device = stepper.search, stepper.memory.ids.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        whole = None if running is None else (search.captured_as, search.limit.minimum)
        machine = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
        key = (size, stepper.beams, whole, search.graph, kind, machine)
        with _lock:
            for idle in self._idle:
                if idle.key == key:
                    self._idle.remove(idle)
                    return idle
        if kind not in self._narrow:
            self._narrow[kind] = NarrowWeights(stepper.model, kind)
        # conversions that autocast remembers would be freed with its block
        typed = torch.autocast(device, kind, kind is not None, cache_enabled=False)
        try:
            with typed, self._narrow[kind].used():
                new = CapturedSteps(stepper, running, size, self._recorder)
        except RuntimeError as error:
            if ran_out(error):
                forget(stepper.model)
                _say_why_not("out of memory")
            else:
                self._works = False
                _say_why_not(" ".join(str(error).split())[:200])
            return None
        new.key = key
        return new

    def give_back(self, model: nn.Module, some: Sequence[CapturedSteps]) -> None:
        """Keep captured steps for later batches, unless all take too much memory."""
        for one in some:
            if one.running is not None:
                one.running.results = {}
        with _lock:
            self._idle += some
            total = sum(one.nbytes for one in self._idle)
        if total > _SHARE * self._recorder.memory:
            forget(model)


class Replayed:
    """The steps of a stepper as CUDA graphs, in tensors of fixed sizes.

    Args:
        stepper: before its first step.
        captures: the captured steps of its model.
    """

    def __init__(self, stepper: Any, captures: Captures) -> None:
        self._stepper, self._plain, self._captures = stepper, copy(stepper), captures
        self._whole = stepper.search.captured_as is not None and not stepper.processors
        self.used: list[CapturedSteps] = []
        """Captured steps of this batch, of which the last are in use."""

    def next(self, running: Running) -> Running:
        """Advance hypotheses by a step, and return them: in larger tensors if these were full."""
        size = self.used[-1].size
        if self._stepper.steps == size.capacity:
            running = self.move(
                running, size._replace(capacity=at_least(2 * size.capacity, CAPACITY))
            )
        if self._whole:
            self._stepper.begin()
            self.used[-1].replay()
        else:
            running.advance(self._stepper)
        return running

    def shrink(self, running: Running, live: int) -> Running:
        """Return the hypotheses of `live` sentences if these fit in fewer rows, else all."""
        size, rows = self.used[-1].size, at_least(live, ROWS)
        if rows == size.rows:
            return running
        return self.move(running, size._replace(rows=rows), running.rows(live))

    def move(self, running: Running, size: Size, rows: Tensor | None = None) -> Running:
        """Continue in tensors of a size, with some rows or all, and return the hypotheses."""
        new = self._captures.take(self._plain, running if self._whole else None, size)
        if new is None:
            if self.used:  # whose tensors may be full
                raise UserError(
                    "decoding steps could not be captured again for longer outputs or fewer "
                    "sentences; set generation.graph=false"
                )
            return running
        new.state.load(self._plain.state, rows)
        self._plain.state = self._stepper.state = new.state  # the batch's own takes memory
        self.used.append(new)
        if new.running is not None:
            new.running.load(running, rows)
            return new.running
        self._stepper.model = self._stepper.state = new
        if rows is not None:
            self._stepper.keep(rows)
            running.keep(rows)
        return running


@contextmanager
def replayed(stepper: Any, running: Running, longest: int) -> Iterator[tuple[Any, Running]]:
    """Yield the runner of a stepper's steps, and the hypotheses that it advances.

    It is the stepper itself if steps cannot be captured.

    Args:
        stepper: before its first step.
        running: all hypotheses.
        longest: maximum number of steps.
    """
    captures = Captures.of(stepper)
    if captures is None:
        if stepper.search.graph == "compiled":
            _say_it_is_ignored()
        yield stepper, running
        return
    steps, (rows, source) = Replayed(stepper, captures), stepper.memory.ids.shape
    size = Size(
        at_least(rows, ROWS), at_least(source, SOURCE), CAPACITY[0], at_least(longest, CAPACITY)
    )
    try:
        running = steps.move(running, size)
        yield steps if steps.used else stepper, running
    finally:
        captures.give_back(steps._plain.model, steps.used)


@once
def _say_why_not(reason: str) -> None:
    say(f"decoding steps cannot be captured as CUDA graphs, and so take more time: {reason}")


@once
def _say_it_is_ignored() -> None:
    say(
        "generation.graph=compiled has no effect: decoding steps are compiled only on a GPU, with "
        "attentions and searches whose steps can be captured"
    )


_captures: WeakKeyDictionary[nn.Module, Captures] = WeakKeyDictionary()
_lock = threading.Lock()


def _places(model: nn.Module) -> list[int]:
    """Return where the tensors of a model are that captured steps read."""
    gates = [part.gates for part in model.modules() if isinstance(part, Attention)]
    tensors = (*model.parameters(), *model.buffers(), *gates)
    return [0 if x is None else x.data_ptr() for x in tensors]


def forget(model: nn.Module) -> None:
    """Drop a model's captured steps, once no thread uses them."""
    with _lock:
        _captures.pop(model, None)
