"""What the attention benchmark runs: inputs, and attention as a piece of work on them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.base import Attention
from seqattn.attention.cache import KeysValues
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position, Stack


class Inputs(NamedTuple):
    """Inputs of one length: x (B, n, D), and q, k, v (B, H, n, Dh), all with gradients."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor

    @property
    def length(self) -> int:
        """n, in tokens."""
        return self.x.shape[1]

    def pair(self, attention: Attention) -> KeysValues:
        """Keys and values for as many key heads as an attention has."""
        groups = int(getattr(attention, "num_kv_heads", attention.num_heads))
        return KeysValues(self.k[:, :groups], self.v[:, :groups])


def draw(batch: int, length: int, dim: int, heads: int, dtype: torch.dtype, device: str) -> Inputs:
    """Normal inputs of one length."""
    source = torch.Generator(device).manual_seed(0)

    def one(*shape: int) -> Tensor:
        x = torch.randn(shape, generator=source, device=device, dtype=torch.float32)
        return x.to(dtype).requires_grad_()

    head = (batch, heads, length, dim // heads)
    return Inputs(one(batch, length, dim), one(*head), one(*head), one(*head))


class Subject(NamedTuple):
    """A piece of work by name, with what holds its parameters."""

    name: str
    run: Callable[[], Tensor]
    module: nn.Module
    inputs: Inputs
    attention: Attention | None

    def work(self, backward: bool) -> int:
        """One call, forward or both ways."""
        if not backward:
            with torch.no_grad():
                out = self.run()
        else:
            out = self.run()
            out.backward(torch.ones_like(out))
            for leaf in (*self.inputs, *self.module.parameters()):
                leaf.grad = None
        if out.device.type == "cuda":
            torch.cuda.synchronize()
        return 1

    def cache_bytes(self, length: int, dim: int, dtype: torch.dtype, device: str) -> int | None:
        """Bytes of the cache after `length` tokens; None for what does not decode."""
        if self.attention is None or not self.attention.abilities.fits("decoder"):
            return None
        places = torch.arange(length, device=device)
        cache = self.attention.make_cache(beams=1)
        position = Position(Stack(dim, self.attention.num_heads))
        piece = 512
        with torch.inference_mode():
            for start in range(0, length, piece):
                here = places[start : start + piece]
                x = torch.zeros(1, len(here), dim, dtype=dtype, device=device)
                mask = Mask(here, places[: start + len(here)], causal=True)
                self.attention(x, self.attention.project(x), mask, position, cache)
        return cache.nbytes


def plain(dim: int, heads: int, projections: bool, inputs: Inputs, causal: bool) -> Subject:
    """PyTorch's attention alone, or between four linear layers."""
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4)).to(
        inputs.x.device, inputs.x.dtype
    )

    def run() -> Tensor:
        if not projections:
            return F.scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, is_causal=causal)
        query, key, value, output = layers
        q, k, v = (
            layer(inputs.x).unflatten(2, (heads, -1)).transpose(1, 2)
            for layer in (query, key, value)
        )
        context = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out: Tensor = output(context.transpose(1, 2).flatten(2))
        return out

    return Subject("sdpa", run, layers if projections else nn.ModuleList(), inputs, None)
