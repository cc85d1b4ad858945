"""One call of an attention on given inputs, with its time and memory."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.suite import Row, Sample, timed
from seqattn.attention.base import Mixer
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position, Stack

_PIECE = 512  # tokens added at once to fill a cache
_CPU_FLOPS = {  # PyTorch knows those for GPUs; shapes are (B, H, T or S, Dh)
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, *_, **__: 4 * query.numel() * key[2]
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda gradient, query, key, *_, **__: 10 * query.numel() * key[2]
    ),
}


def is_attention(factory: Callable[..., object]) -> bool:
    """Return True if a factory builds an attention of a Transformer, or another mixer."""
    cls = getattr(factory, "func", factory)
    return isinstance(cls, type) and issubclass(cls, Mixer)


class Inputs(NamedTuple):
    """Inputs of one length: x (B, n, D), and q, k, v (B, H, n, Dh)."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor

    @classmethod
    def draw(cls, batch: int, heads: int, length: int, head_dim: int, like: Tensor) -> "Inputs":
        """Draw normal inputs, always the same, with dtype and device of `like`.

        They require gradients if `like` does.
        """
        source = torch.Generator(like.device).manual_seed(0)
        shape = (4, batch, heads, length, head_dim)
        x, *heads_of = torch.randn(shape, generator=source, device=like.device).to(like.dtype)
        inputs = (x.transpose(1, 2).flatten(2), *heads_of)  # (B, n, D)
        return cls(*(each.requires_grad_(like.requires_grad) for each in inputs))


class Cost(NamedTuple):
    """Costs of one contestant at one length: seconds, peak bytes, and a table's row."""

    length: int
    seconds: float
    bytes: int
    row: Row


class Work(NamedTuple):
    """Call of an attention, with the module of its parameters, its inputs, and its decoder."""

    call: Callable[[], Tensor]
    module: nn.Module
    inputs: Inputs
    attention: Mixer | None = None

    def run(self) -> int:
        """Run one call, and the backward pass if the inputs require gradients."""
        backward = self.inputs.x.requires_grad
        with torch.set_grad_enabled(backward):
            out = self.call()
        if backward:
            out.backward(torch.ones_like(out))
            for leaf in (*self.inputs, *self.module.parameters()):
                leaf.grad = None
        _wait_for(out)
        return 1

    def turn(self, _: int) -> Sample:
        """Time one call."""
        return timed(self.run)

    def flops(self) -> int:
        """Count the floating-point operations of one call with `FlopCounterMode`."""
        with FlopCounterMode(display=False, custom_mapping=_CPU_FLOPS) as counter:
            self.run()
        return counter.get_total_flops()

    def cache_bytes(self) -> int | None:
        """Return bytes of the cache after all tokens; None if it cannot decode."""
        if self.attention is None or not self.attention.abilities.fits("decoder"):
            return None
        cache, x = self.attention.make_cache(beams=1), self.inputs.x[:1].detach()
        position = Position(Stack(x.shape[2], 1))
        for _ in decode(self.attention, position, x, cache, _PIECE):
            pass
        return cache.nbytes


def exponent(costs: Sequence[Cost], shortest: int = 4096) -> float | None:
    """Fit time ~ n^k over lengths from `shortest` up and return k; None for fewer than two."""
    points = [(math.log(c.length), math.log(c.seconds)) for c in costs if c.length >= shortest]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def decode(
    attention: Mixer, position: Position, x: Tensor, cache: Cache, piece: int = 1
) -> Iterator[int]:
    """Attend to x (1, n, D) through an empty cache, `piece` tokens at once; yield 1 per piece."""
    places = torch.arange(x.shape[1], device=x.device)
    for start in range(0, len(places), piece):
        end = start + piece
        with torch.inference_mode():
            mask = Mask(places[start:end], places[:end], causal=True)
            attention.mix(x[:, start:end], mask, position, cache)
        _wait_for(x)
        yield 1


def attention_work(
    attention: Mixer, position: Position, inputs: Inputs, causal: bool, projections: bool
) -> Work | None:
    """Build self-attention, or only its kernel if it has one; None if the case is not supported."""
    if not attention.abilities.fits("decoder" if causal else "encoder"):
        return None
    x = inputs.x
    attention.to(x.device, x.dtype)
    position.to(x.device, x.dtype)
    places = torch.arange(x.shape[1], device=x.device)
    mask = Mask(places, places, causal=causal)
    kernel = None if projections else getattr(attention, "kernel", None)

    def call() -> Tensor:
        if kernel is None:
            return attention.mix(x, mask, position)
        groups = kernel.num_kv_heads
        query = inputs.k if attention.abilities.shared else inputs.q
        pair = KeysValues(inputs.k[:, :groups], inputs.v[:, :groups])
        out: Tensor = kernel(query, pair, mask, position).context
        return out

    return Work(call, nn.ModuleList([kernel or attention, position]), inputs, attention)


def sdpa_work(inputs: Inputs, causal: bool, projections: bool) -> Work:
    """Build PyTorch's attention alone, or between four linear layers."""
    heads, dim = inputs.q.shape[1], inputs.x.shape[2]
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4 * projections))
    layers.to(inputs.x.device, inputs.x.dtype)

    def call() -> Tensor:
        if not projections:
            return scaled_dot_product_attention(*inputs[1:], is_causal=causal)
        *maps, output = layers
        q, k, v = (each(inputs.x).unflatten(2, (heads, -1)).transpose(1, 2) for each in maps)
        context = scaled_dot_product_attention(q, k, v, is_causal=causal)
        out: Tensor = output(context.transpose(1, 2).flatten(2))
        return out

    return Work(call, layers, inputs)


def peak_bytes(work: Callable[[], object], device: str) -> int:
    """Return the peak of bytes allocated while `work` ran, beyond those allocated before.

    From the allocator on a GPU, from all events of the profiler on a CPU.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(profile_memory=True) as recorded:
        work()
    assert recorded.kineto_results is not None
    events = recorded.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(accumulate((size for _, size in changes), initial=0))


def _wait_for(x: Tensor) -> None:
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)
