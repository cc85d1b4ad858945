"""Modules built for inspection only."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _NoNumbers(TorchFunctionMode):
    """Skip `normal_`, for which PyTorch would spend seconds importing its compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            return args[0] if args else arguments["tensor"]
        return func(*args, **arguments)


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build modules on the meta device, without memory, values or warnings."""
    logging.disable(logging.WARNING)
    try:
        with torch.device("meta"), _NoNumbers():
            yield
    finally:
        logging.disable(logging.NOTSET)
