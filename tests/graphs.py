"""A CUDA graph on the CPU: operations recorded with their tensors, and done again on these."""

import threading
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from seqattn import ops
from seqattn.generation import captured_steps, stepper
from seqattn.generation.generator import Generator

_READS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "unique"}


def _places(values):
    tensors = (x for x in tree_leaves(values) if isinstance(x, Tensor))
    return {x.untyped_storage().data_ptr() for x in tensors if x.layout == torch.strided}


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.done = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in _READS, f"{name} would read numbers of the device in a capture"
        assert name != "lift_fresh" or not args[0].dim(), "numbers of the host copied in a capture"
        chosen = tree_leaves(args[1:]) if name in ("index", "index_put_", "index_put") else ()
        assert all(getattr(x, "dtype", None) != torch.bool for x in chosen), f"{name} by a mask"
        made = function(*args, **(kwargs or {}))
        before = _places((args, kwargs))
        news = [x for x in tree_leaves(made) if isinstance(x, Tensor)]
        news = [None if _places(x) <= before else x for x in news]
        if any(x is not None for x in news) or not function.is_view:
            parts = tree_map_only(Tensor, Tensor.detach, (args, kwargs or {}, news))
            self.done.append((function, *parts))
        return made


_thread = threading.local()
_at_hand = ops.at_hand


def _is_at_hand(x):
    return _at_hand(x) and not getattr(_thread, "captures", False)


class Replay:
    """What `capture` would return: no Python runs again, and every tensor stays where it is."""

    def __init__(self, call):
        recorder = _Recorder()
        with recorder:
            _thread.captures = True
            try:
                call()
            finally:
                _thread.captures = False
        self.done, self.replayed = recorder.done, 0

    @torch.enable_grad()  # LSTMs return more with gradients
    def __call__(self):
        self.replayed += 1
        for function, args, kwargs, news in self.done:
            made = [x for x in tree_leaves(function(*args, **kwargs)) if isinstance(x, Tensor)]
            for own, x in zip(news, made, strict=True):
                if own is not None:
                    own.copy_(x)


@contextmanager
def recording(module, made, memory=1e9, error=None, is_at_hand=_is_at_hand):
    """Let a module capture graphs on the CPU.

    Args:
        made: gets each graph, or `error`.
        memory: bytes of the device.
        error: raised by a capture.
        is_at_hand: in place of `ops.at_hand`, for which a CPU takes quicker ways.
    """

    class Recorder:
        def __init__(self, device):
            self.memory = memory

        def capture(self, *calls):
            if error is not None:
                made.append(error)
                raise error
            for call in calls:
                call()
            new = [Replay(call) for call in calls]
            made.extend(new)
            return new

    with (
        patch.object(ops, "at_hand", is_at_hand),
        patch.object(module, "Recorder", Recorder),
        patch.object(module, "may_replay", lambda device: True),
    ):
        yield


@contextmanager
def captured(rows=(2, 4, 8), source=(4, 8), capacity=(4, 8), late=0, memory=1e9, error=None):
    """Let searches on the CPU capture their steps; lists the graphs.

    Args:
        rows, source, capacity: sizes of tensors.
        late: age in steps of the numbers that searches read.
        memory: bytes of the device.
        error: raised by a capture.
    """
    made = []

    class Reader:
        def __init__(self, first, waits):
            self.known = [first] * late * (not waits)

        def __call__(self, number):
            self.known.append(int(number))
            return self.known.pop(0)

    with (
        recording(captured_steps, made, memory, error),
        patch.object(stepper, "LateReader", Reader),
        patch.multiple(captured_steps, ROWS=rows, SOURCE=source, CAPACITY=capacity),
    ):
        yield made


def same_outputs(model, search, sources, constraints=None, **options):
    """Check that a search has the same outputs with captured steps, twice, and return the graphs.

    Args:
        search: makes the search.
        options: of `captured`.
    """
    plain = Generator(model, search(graph=False)).generate(sources, constraints=constraints)
    with captured(**options) as graphs:
        for _ in range(2):
            before = len(graphs)
            found = Generator(model, search()).generate(sources, constraints=constraints)
            assert [[one.ids for one in some] for some in found] == [
                [one.ids for one in some] for some in plain
            ]
            pairs = [pair for rows in zip(found, plain) for pair in zip(*rows)]
            assert all(abs(x.log_probability - y.log_probability) < 1e-4 for x, y in pairs)
    assert len(graphs) == before, "a graph is captured once"
    return graphs
