"""`torch.compile` for inputs of any length."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

_MOST_GRAPHS = 64
"""Graphs of one function; PyTorch's 8 would leave some layers of a mixed stack uncompiled."""


def compiled(call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return `torch.compile(call, **options)`, with many graphs if PyTorch has that option."""
    if "recompile_limit" in signature(torch.compile).parameters:
        options = {"recompile_limit": _MOST_GRAPHS, **options}
    return torch.compile(call, **options)


def vary(x: Tensor, *axes: int) -> None:
    """Tell the compiler that these axes of x have any length.

    Otherwise it would compile for the first batch alone, and again for the second. Where PyTorch
    lacks this, it does so.
    """
    mark = getattr(getattr(torch, "_dynamo", None), "maybe_mark_dynamic", None)
    if mark is not None:
        for axis in axes:
            mark(x, axis)
