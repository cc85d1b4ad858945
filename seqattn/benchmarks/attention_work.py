"""Attention as a piece of work on given inputs, whose cost is measured."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqattn.attention.base import Attention
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position, Stack

_PIECE = 512  # tokens that a cache takes at once when it is filled


class Inputs(NamedTuple):
    """Inputs of one length: x (B, n, D), and q, k, v (B, H, n, Dh)."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor

    @classmethod
    def draw(cls, shape: Sequence[int], like: Tensor, gradients: bool) -> "Inputs":
        """Normal inputs, always the same.

        Args:
            shape: B, n, H and Dh.
            like: has their type and device.
            gradients: whether they get gradients.
        """
        batch, length, heads, head_dim = shape
        source = torch.Generator(like.device).manual_seed(0)
        shapes = ((batch, length, heads * head_dim), *[(batch, heads, length, head_dim)] * 3)
        drawn = (torch.randn(one, generator=source, device=like.device) for one in shapes)
        return cls(*(x.to(like.dtype).requires_grad_(gradients) for x in drawn))


class Work(NamedTuple):
    """A call of an attention, what holds its parameters, its inputs, and who decodes."""

    call: Callable[[], Tensor]
    module: nn.Module
    inputs: Inputs
    attention: Attention | None = None

    def run(self, backward: bool) -> int:
        """One call, forward or both ways."""
        with torch.set_grad_enabled(backward):
            out = self.call()
        if backward:
            out.backward(torch.ones_like(out))
            for leaf in (*self.inputs, *self.module.parameters()):
                leaf.grad = None
        if out.device.type == "cuda":
            torch.cuda.synchronize()
        return 1

    def cache_bytes(self) -> int | None:
        """Bytes of the cache after all tokens; None for what does not decode."""
        if self.attention is None or not self.attention.abilities.fits("decoder"):
            return None
        cache, x = self.attention.make_cache(beams=1), self.inputs.x[:1].detach()
        position = Position(Stack(x.shape[2], self.attention.num_heads))
        for _ in decode(self.attention, position, x, cache, _PIECE):
            pass
        return cache.nbytes


def decode(
    attention: Attention, position: Position, x: Tensor, cache: Cache, piece: int = 1
) -> Iterator[int]:
    """Attends piece by piece through the cache, and yields 1 after each.

    Args:
        attention: one that fits a decoder.
        position: its scheme.
        x: (1, n, D).
        cache: empty at first.
        piece: tokens at once.
    """
    places = torch.arange(x.shape[1], device=x.device)
    for start in range(0, len(places), piece):
        end = start + piece
        with torch.inference_mode():
            mask = Mask(places[start:end], places[:end], causal=True)
            attention.mix(x[:, start:end], mask, position, cache)
        if x.device.type == "cuda":
            torch.cuda.synchronize()
        yield 1


def attention_work(
    attention: Attention, position: Position, inputs: Inputs, causal: bool, projections: bool
) -> Work | None:
    """An attention on itself, or its kernel alone where it has one; None for what cannot be so."""
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
    """PyTorch's attention alone, or between four linear layers."""
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


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of every storage that operators make, while it lives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._watch((args, kwargs), made=False)  # inputs and parameters
        out = func(*args, **(kwargs or {}))
        self._watch(out, made=True)
        return out

    def _watch(self, tree: Any, made: bool) -> None:
        for tensor in tree_leaves(tree):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._known:
                storage = tensor.untyped_storage()
                size = storage.nbytes() if made else 0
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
