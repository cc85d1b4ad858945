"""Modules that are made to be looked at, not to be used."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _NoNumbers(TorchFunctionMode):
    """Leaves out `normal_`, for which PyTorch would import its compiler: seconds, for nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def unallocated() -> Iterator[None]:
    """Modules made inside take no memory, hold no numbers and say nothing."""
    logging.disable(logging.WARNING)
    try:
        with torch.device("meta"), _NoNumbers():
            yield
    finally:
        logging.disable(logging.NOTSET)
