"""Which products of matrices are left to oneDNN."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SETTINGS = getattr(torch.backends.mkldnn, "matmul", None)  # from PyTorch 2.9 on
_PRODUCTS = {getattr(torch.ops.aten, name) for name in ("mm", "addmm", "mv", "bmm")}


class Products(TorchDispatchMode):
    """Lists whether each product of matrices was left to oneDNN."""

    def __init__(self):
        super().__init__()
        self.quick = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.overloadpacket in _PRODUCTS:
            self.quick.append(SETTINGS.fp32_precision == "bf16")
        return op(*args, **(kwargs or {}))
