"""How much memory lives at once while something runs."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of every storage that operators make, while it lives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._known:
                self._watch(tensor, 0)  # made before: an input or a parameter
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._known:
                self._watch(tensor, tensor.untyped_storage().nbytes())
        return out

    def _watch(self, tensor: Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        self._known.add(storage._cdata)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, storage._cdata, size)

    def _gone(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.live -= size


def peak_bytes(work: Callable[[], object], device: str) -> int:
    """The most bytes that lived at once while `work` ran, beside what lived before.

    On a CPU tensors are counted as the operators make them; what an operator allocates and frees
    within itself is not seen. On a GPU it is the allocator's own figure.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with _LiveBytes() as counted:
        work()
    return counted.peak
