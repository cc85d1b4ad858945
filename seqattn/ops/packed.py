"""An output layer whose weights lie as the CPU's matrix product reads them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@contextmanager
def packed(layer: nn.Linear) -> Iterator[None]:
    """Packs the weights of `layer` once for as long as the block runs, and not at every call.

    Generation multiplies few rows by a whole vocabulary, so that packing takes as long as the
    product. It is oneDNN's and for float32 on a CPU; anywhere else the layer stays as it is. The
    weights must not change inside the block. Blocks of several threads may overlap.
    """
    weight, bias = layer.weight, layer.bias
    own_way = type(layer) is not nn.Linear or "forward" in vars(layer)
    if own_way or not _can_pack(weight):
        yield
        return
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 64)

    def forward(x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return F.linear(x, weight, bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, ordered, bias, "none", [], "")
        return out

    layer.forward = forward  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        vars(layer).pop("forward", None)


def _can_pack(weight: Tensor) -> bool:
    names = "_reorder_linear_weight", "_linear_pointwise"  # undocumented: used where they are there
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in names)
    )
