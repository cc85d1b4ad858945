"""What PyTorch is asked to do: operations counted, and those that would wait for a GPU refused.

The meta device stands for a GPU: it has no numbers to read, and what is not for a CPU runs on it.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_VIEWS = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "expand", "permute",
    "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind",
    "unfold", "unsqueeze", "view",
}  # fmt: skip
_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_FROM_LISTS = {torch.tensor, torch.as_tensor, Tensor.new_tensor}


class _Counted(TorchDispatchMode):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name == "_to_copy":
            to = torch.device(kwargs.get("device") or args[0].device)
            self._check(name, to.type == "meta", args[0], kwargs.get("non_blocking"))
        elif name == "copy_":
            self._check(name, args[0].is_meta, args[1], (args[2:] or [False])[0])
        if name not in _VIEWS | _ALLOCATIONS:
            self.names[name] += 1
        return function(*args, **kwargs)

    def _check(self, name, to_meta, source, non_blocking):
        waits = to_meta and source.device.type == "cpu" and source.dim() and not non_blocking
        assert not waits, f"{name} from the host waits for the device"


class _FromLists(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        waits = function in _FROM_LISTS and made.is_meta and made is not args[0]
        assert not waits, f"{function.__name__} copies from the host and waits for the device"
        return made


@contextmanager
def operations():
    """Counts by their names the operations in the block that a GPU would launch.

    Not within `torch.inference_mode`, which names them otherwise.

    Raises:
        AssertionError: for a copy from the host that waits for the device.
    """
    names = Counter()
    with _FromLists(), _Counted(names):
        yield names


class Largest(TorchDispatchMode):
    """Remember the size in numbers of the largest tensor, or storage, that an operation makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, Tensor):
                stored = part.untyped_storage().size() // part.itemsize
                self.numbers = max(self.numbers, part.numel(), stored)
        return out
