"""Softmax attention over keys and values that travel around a ring of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqattn.attention.kernels.parts.merging import Partial, merged, powers_
from seqattn.attention.split import gathered
from seqattn.ops.precision import wide


class Plan(NamedTuple):
    """How a ring attends.

    Args:
        group: the ranks, in the order of the sequence's parts.
        causal: a query sees only the keys that do not stand after it.
        scale: factor on query-key products.
        chunk: keys in a product at a time.
    """

    group: dist.ProcessGroup
    causal: bool
    scale: float
    chunk: int


def ring_attention(query: Tensor, keys: Tensor, values: Tensor, real: Tensor, plan: Plan) -> Tensor:
    """The context of this rank's queries over the keys of all ranks; every rank must call it.

    Args:
        query: (B, H, T, Dh), this rank's part.
        keys: (B, G, T, Dh), likewise.
        values: (B, G, T, Dh), likewise.
        real: (B, T) bool, which of this rank's tokens are real.
        plan: how.

    Returns:
        (B, H, T, Dh); zeros for a query with nothing to see.
    """
    context: Tensor = _Ring.apply(query, keys, values, real, plan)  # type: ignore[no-untyped-call]
    return context


class _Ring(torch.autograd.Function):
    """Blockwise softmax, forward (Liu et al. 2023, algorithm 1) and backward.

    The backward pass makes the weights again from what the forward pass kept of each row: the
    logarithm of its sum. The gradients of keys and values travel with them, and are home after as
    many steps as there are ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, real: Tensor, plan: Plan
    ) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            q = wide(query).unflatten(1, (keys.shape[1], -1)) * plan.scale  # (B, G, R, T, Dh)
            everyone = gathered(real, plan.group)  # (ranks, B, T)
            nothing = torch.zeros_like(q[..., :1])
            whole = Partial(torch.zeros_like(q), nothing, nothing - torch.inf)
            pair = torch.stack((keys, values))
            for owner, pair in _travelling(pair, plan.group):  # noqa: B020
                for part, allowed in _visible(owner, everyone, plan):
                    k, v = (wide(x[:, :, part]) for x in pair)
                    powers, peak = powers_(_scores(q, k), allowed)
                    context = torch.einsum("bgrts,bgsd->bgrtd", powers, v)
                    whole = whole.joined(Partial(context, powers.sum(dim=-1, keepdim=True), peak))
            context, alone = merged([whole]), whole.total == 0
            log_total = whole.total.masked_fill(alone, 1.0).log() + whole.peak.masked_fill(alone, 0)
        ctx.plan = plan
        ctx.save_for_backward(query, keys, values, everyone, context, log_total)
        return context.flatten(1, 2).to(query.dtype)  # (B, G, R, T, Dh) -> (B, H, T, Dh)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        query, keys, values, everyone, context, log_total = ctx.saved_tensors
        q = wide(query).unflatten(1, (keys.shape[1], -1)) * plan.scale
        upstream = wide(gradient).unflatten(1, (keys.shape[1], -1))
        mean = (upstream * context).sum(dim=-1, keepdim=True)
        q_gradient = torch.zeros_like(q)
        pair = torch.stack((keys, values))
        gradients = torch.zeros_like(pair, dtype=q.dtype)
        for owner, pair in _travelling(pair, plan.group):  # noqa: B020
            for part, allowed in _visible(owner, everyone, plan):
                k, v = (wide(x[:, :, part]) for x in pair)
                scores = _scores(q, k).masked_fill_(~allowed, -torch.inf)
                weights = (scores - log_total).exp()
                of_weights = torch.einsum("bgrtd,bgsd->bgrts", upstream, v)
                of_scores = weights * (of_weights - mean)
                q_gradient += torch.einsum("bgrts,bgsd->bgrtd", of_scores, k)
                gradients[0, :, :, part] += torch.einsum("bgrts,bgrtd->bgsd", of_scores, q)
                gradients[1, :, :, part] += torch.einsum("bgrts,bgrtd->bgsd", weights, upstream)
            gradients = _pass_on(gradients, plan.group)()
        of_query = (q_gradient * plan.scale).flatten(1, 2).to(query.dtype)
        return of_query, gradients[0].to(keys.dtype), gradients[1].to(values.dtype), None, None


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """(B, G, R, T, S) of q (B, G, R, T, Dh) and k (B, G, S, Dh)."""
    return torch.einsum("bgrtd,bgsd->bgrts", q, k)


def _visible(owner: int, everyone: Tensor, plan: Plan) -> Iterator[tuple[slice, Tensor]]:
    """The chunks of `owner`'s keys that this rank's queries may see, and which of them.

    Ranks hold the parts of a sequence in its order, so that all that stands on a later rank stands
    later. Gives slices of T and masks broadcastable to (B, G, R, T, S).
    """
    rank = dist.get_rank(plan.group)
    if plan.causal and owner > rank:
        return
    length = everyone.shape[2]
    places = torch.arange(length, device=everyone.device)
    for start in range(0, length, plan.chunk):
        part = slice(start, start + plan.chunk)
        allowed = everyone[owner, :, None, None, None, part]  # (B, 1, 1, 1, S)
        if plan.causal and owner == rank:
            allowed = allowed & (places[part] <= places[:, None])
        yield part, allowed


def _travelling(pair: Tensor, group: dist.ProcessGroup) -> Iterator[tuple[int, Tensor]]:
    """Each rank's keys and values in turn, this one's first; the next ones come meanwhile."""
    rank, size = dist.get_rank(group), group.size()
    for step in range(size):
        arriving = _pass_on(pair, group) if step + 1 < size else None
        yield (rank - step) % size, pair
        if arriving is not None:
            pair = arriving()


def _pass_on(x: Tensor, group: dist.ProcessGroup) -> Callable[[], Tensor]:
    """Sends `x` to the next rank; what this gives waits for what the rank before has sent."""
    rank, size = dist.get_rank(group), group.size()
    x, received = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    after, before = (dist.get_global_rank(group, (rank + by) % size) for by in (1, -1))
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, after, group), dist.P2POp(dist.irecv, received, before, group)]
    )

    def wait() -> Tensor:
        for work in works:
            work.wait()
        return received

    return wait
