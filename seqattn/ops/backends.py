"""Attention by the one of PyTorch's functions that the user names."""

import warnings
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from seqattn.errors import UserError
from seqattn.ops.gpu import for_all_heads

Backend = Literal["auto", "flash", "efficient", "math", "written_out"]
"""`auto` follows the table of `ops`; `written_out` is the kernel's own, with all weights."""
_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
_UNSERVED = "No available kernel", "No viable backend"
_HEADINGS = "not used because", "runtime disabled"  # of PyTorch's reasons, and of the other ones


def forced_attention(
    backend: Backend,
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    dropout: float,
    scale: float,
) -> Tensor:
    """Compute `ops.attention` by one of PyTorch's backends.

    Args:
        backend: flash, efficient or math.
        q, keys, values, bias, is_causal, dropout, scale: as in `ops.attention`.

    Raises:
        UserError: the backend does not serve such tensors on their device, with PyTorch's reason.
    """
    shared = q.shape[1] != keys.shape[1]
    if shared and backend == "efficient":
        keys, values = (for_all_heads(part, q.shape[1]) for part in (keys, values))
        shared = False

    def attend() -> Tensor:
        with sdpa_kernel(_BACKENDS[backend]):
            return F.scaled_dot_product_attention(
                q, keys, values, bias, dropout, is_causal, scale=scale, enable_gqa=shared
            )

    if torch.compiler.is_compiling():
        return attend()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return attend()
        except RuntimeError as error:
            if not str(error).startswith(_UNSERVED):
                raise
            texts = [str(one.message).partition(" (Triggered")[0] for one in caught]
    reasons = [text.rstrip(". ") for text in texts if not any(part in text for part in _HEADINGS)]
    if not reasons:  # PyTorch gives none on a CPU for what it never computes there
        is_flash = backend == "flash" and bias is not None and bias.requires_grad
        reasons = ["no gradient of a position's scores" if is_flash else "PyTorch has none for it"]
    raise UserError(
        f"attention.kernel.backend={backend} cannot compute this attention on {q.device.type} "
        f"({'; '.join(reasons)}); use auto, math or written_out"
    )
