"""CUDA graphs, and numbers that are read without waiting for the GPU."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import Tensor

_STEPS_AGO = 4
"""Age of the numbers read: a GPU has so many steps to do while the host does other things."""
_lock = threading.Lock()


def may_replay(device: torch.device) -> bool:
    """Return True if functions can be captured: on a CUDA device and its default stream."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    return bool(torch.cuda.current_stream(device) == torch.cuda.default_stream(device))


class Recorder:
    """Graphs of functions, captured on a stream of their own, in one pool of memory.

    They must be freed together, when none is replayed anymore: their products share a workspace on
    the stream, which PyTorch frees with any of them (pytorch#193402). They can share memory as all
    are replayed on the default stream, one after the other.

    Args:
        device: a CUDA device.
    """

    _all: ClassVar["WeakSet[Recorder]"] = WeakSet()

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with _lock, torch.cuda.device(device):
            used = {other_graphs._stream for other_graphs in self._all}
            streams = [torch.cuda.Stream() for _ in range(32)]  # as many as PyTorch has
            free = [stream for stream in streams if stream not in used]
            if not free:
                raise RuntimeError("all streams are in use, by as many models")
            self._stream: Any = free[0]
            self._pool: Any = torch.cuda.graph_pool_handle()
            self._all.add(self)
        self.memory: int = torch.cuda.get_device_properties(device).total_memory
        """Bytes of the device."""

    def capture(self, *calls: Callable[[], None]) -> list[Callable[[], Any]]:
        """Return the replays of functions, which must read and write tensors that never move.

        The functions run twice: first for PyTorch to prepare its kernels, then recorded. Other
        threads may go on.
        """
        graphs = [torch.cuda.CUDAGraph() for _ in calls]
        with _lock, torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for call in calls:
                    call()
                for graph, call in zip(graphs, calls, strict=True):
                    graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                    try:
                        call()
                    finally:
                        graph.capture_end()
            current.wait_stream(self._stream)
        return [graph.replay for graph in graphs]


class LateReader:
    """Reader of a decreasing number that does not wait for a GPU, but reads it some steps late.

    Args:
        first: the number at first.
        waits: wait for the present number.
    """

    def __init__(self, first: int, waits: bool) -> None:
        self._number, self._waits = first, waits
        self._copies: deque[tuple[Tensor, Any]] = deque()

    def __call__(self, number: Tensor) -> int:
        """Return the number, or an earlier and so no smaller one. Args: number: scalar."""
        if self._waits or not number.is_cuda:
            return int(number)
        copy = torch.empty((), dtype=number.dtype, pin_memory=True)
        copy.copy_(number, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(number.device))
        self._copies.append((copy, copied))
        if len(self._copies) > _STEPS_AGO:
            copy, copied = self._copies.popleft()
            copied.synchronize()
            self._number = int(copy)
        return self._number
