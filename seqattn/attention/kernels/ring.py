"""Ring attention: one sequence over several ranks."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache as once
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seqattn.attention.base import Attention
from seqattn.attention.beam_table import BeamSlots
from seqattn.attention.kernels.base import Attended, HeadShape
from seqattn.attention.kernels.shared.partial_softmax import Partial, merged, powers_
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask, gathered, split_group, split_over
from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.ops.precision import wide
from seqattn.ops.second_derivatives import forbid_second_derivatives
from seqattn.positions.base import Position


class RingKernel(SoftmaxKernel):
    """Softmax attention with keys and values passed around a ring of ranks (Liu et al. 2023).

    Ring attention with blockwise softmax (arXiv 2310.01889, algorithm 1). Within
    `sequence_parallel` each of p ranks keeps its part of the queries, and attends to the current
    part of the keys and values while receiving the next one. On one rank, and in decoding, it is
    the softmax kernel, with one notice in the log.

    Time n^2*d/p and memory n/p per rank; products take one chunk of keys at a time, in float32. A
    causal ring is as slow as its last rank, which sees everything. The cache is the softmax
    kernel's, 2*G*Dh numbers per token. Bidirectional, causal and incremental; not cross.

    Args:
        chunk: keys per product, at least 1.
    """

    abilities = replace(
        SoftmaxKernel.abilities, cross=False, hooks=frozenset({"embed", "rotate"}), dropout=False
    )

    def __init__(self, shape: HeadShape, chunk: Count = 1024) -> None:
        super().__init__(shape)
        self.chunk = chunk
        _say_what_it_is()

    def _attend(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Mask,
        position: Position,
        need_weights: bool = False,
        slots: BeamSlots | None = None,
    ) -> Attended:
        group = split_group()
        if group is None or group.size() == 1:
            return super()._attend(q, keys, values, mask, position, need_weights, slots)
        unsplit = mask.extra is not None or self.is_observed or self.written_out
        assert not unsplit, "custom masks, capture and overridden weights need unsplit sequences"
        real = mask.real
        if real is None:
            real = torch.ones(len(q), q.shape[2], dtype=torch.bool, device=q.device)
        plan = Plan(group, mask.causal, position.score_scale(self.head_dim), self.chunk)
        context: Tensor = _Ring.apply(q, keys, values, real, plan)  # type: ignore[no-untyped-call]
        return Attended(context)


@once
def _say_what_it_is() -> None:
    logging.getLogger(__name__).warning(
        "on one rank, and in decoding, ring attention is plain softmax attention; to split "
        "sequences over ranks, use seqattn.attention.kernels.ring.sequence_parallel"
    )


@contextmanager
def sequence_parallel(module: nn.Module, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Split sequences over ranks for the ring attentions of `module` within the block.

    Every rank of the group runs the same calls on its own part: rank r of p gets tokens
    r*n/p to (r+1)*n/p of every sentence, padding included, so n must be padded to a multiple of p.
    Masks created in the block count positions over all ranks (`Mask.full`, `positions_of`), so
    that `model.encode(part)` works unchanged:

        ids = source.chunk(size, dim=1)[rank]
        with sequence_parallel(model.encoder):
            memory = model.encode(ids)  # this rank's part of the memory
            ...backward...

    The backward pass belongs in the block too. It gives the gradient of this rank's tokens: sum
    parameter gradients over the ranks. Works for encoders and for single attentions, including
    causal ones. The decoder of a Transformer needs the complete memory: gather its parts first.

    Args:
        module: the module to run on parts; all its attentions must have the ring kernel.
        group: the ranks, in the order of the parts; None for all.

    Raises:
        UserError: an attention does not have the ring kernel.
    """
    ranks = dist.group.WORLD if group is None else group
    assert ranks is not None, "call torch.distributed.init_process_group first"
    for name, part in module.named_modules():
        rings = (isinstance(kernel, RingKernel) for kernel in part.modules())
        if isinstance(part, Attention) and not any(rings):
            raise UserError(
                f"{name or 'the module'} uses {part.name}, which would attend only within a "
                "rank's part of a sequence; build it with attention=ring"
            )
    with split_over(ranks):
        yield


class Plan(NamedTuple):
    """Settings of a ring attention."""

    group: dist.ProcessGroup  # the ranks, in the order of the sequence's parts
    causal: bool
    scale: float  # factor on query-key products
    chunk: int  # keys per product


class _Ring(torch.autograd.Function):
    """Blockwise softmax, forward (Liu et al. 2023, algorithm 1) and backward.

    Every rank passes its part of queries (B, H, T, Dh), keys and values (B, G, T, Dh), and which of
    its tokens are real (B, T), and gets the context (B, H, T, Dh) of its queries over all keys,
    zeros for a query without visible keys.

    The backward pass recomputes the weights from the stored log-sum-exp of each row. The gradients
    of keys and values travel with them, and return to their rank after a full round.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, real: Tensor, plan: Plan
    ) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            q = wide(query).unflatten(1, (keys.shape[1], -1)) * plan.scale  # (B, G, R, T, Dh)
            everyone = gathered(real, plan.group)  # (ranks, B, T)
            nothing = torch.zeros_like(q[..., :1])
            total = Partial(torch.zeros_like(q), nothing, nothing - torch.inf)
            pair = torch.stack((keys, values))
            for owner, pair in _travelling(pair, plan.group):  # noqa: B020
                for part, allowed in _visible(owner, everyone, plan):
                    k, v = (wide(x[:, :, part]) for x in pair)
                    scores = torch.einsum("bgrtd,bgsd->bgrts", q, k)
                    powers, peak = powers_(scores, allowed)
                    context = torch.einsum("bgrts,bgsd->bgrtd", powers, v)
                    total = total.merge(Partial(context, powers.sum(dim=-1, keepdim=True), peak))
            context, empty = merged([total]), total.total == 0
            log_total = total.total.masked_fill(empty, 1.0).log() + total.peak.masked_fill(empty, 0)
        ctx.plan = plan
        ctx.save_for_backward(query, keys, values, everyone, context, log_total)
        return context.flatten(1, 2).to(query.dtype)  # (B, G, R, T, Dh) -> (B, H, T, Dh)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        forbid_second_derivatives(
            "sequence_parallel does not support second derivatives; compute them without it"
        )
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
                scores = torch.einsum("bgrtd,bgsd->bgrts", q, k).masked_fill_(~allowed, -torch.inf)
                weights = (scores - log_total).exp()
                of_weights = torch.einsum("bgrtd,bgsd->bgrts", upstream, v)
                of_scores = weights * (of_weights - mean)
                q_gradient += torch.einsum("bgrts,bgsd->bgrtd", of_scores, k)
                gradients[0, :, :, part] += torch.einsum("bgrts,bgrtd->bgsd", of_scores, q)
                gradients[1, :, :, part] += torch.einsum("bgrts,bgrtd->bgsd", weights, upstream)
            gradients = _pass_on(gradients, plan.group)()
        of_query = (q_gradient * plan.scale).flatten(1, 2).to(query.dtype)
        return of_query, gradients[0].to(keys.dtype), gradients[1].to(values.dtype), None, None


def _visible(owner: int, everyone: Tensor, plan: Plan) -> Iterator[tuple[slice, Tensor]]:
    """Yield the chunks of `owner`'s keys that this rank's queries may see, with masks.

    Ranks hold the parts of a sequence in order, so tokens on a later rank are later. Yields
    slices of T and masks broadcastable to (B, G, R, T, S).
    """
    rank = dist.get_rank(plan.group)
    if plan.causal and owner > rank:
        return
    length = everyone.shape[2]
    positions = torch.arange(length, device=everyone.device)
    for start in range(0, length, plan.chunk):
        part = slice(start, start + plan.chunk)
        allowed = everyone[owner, :, None, None, None, part]  # (B, 1, 1, 1, S)
        if plan.causal and owner == rank:
            allowed = allowed & (positions[part] <= positions[:, None])
        yield part, allowed


def _travelling(pair: Tensor, group: dist.ProcessGroup) -> Iterator[tuple[int, Tensor]]:
    """Yield each rank's keys and values, starting with this one's; receive the next meanwhile."""
    rank, size = dist.get_rank(group), group.size()
    for step in range(size):
        arriving = _pass_on(pair, group) if step + 1 < size else None
        yield (rank - step) % size, pair
        if arriving is not None:
            pair = arriving()


def _pass_on(x: Tensor, group: dist.ProcessGroup) -> Callable[[], Tensor]:
    """Send `x` to the next rank; return a function that waits for the previous rank's tensor."""
    rank, size = dist.get_rank(group), group.size()
    x, received = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    dst, src = (dist.get_global_rank(group, (rank + by) % size) for by in (1, -1))
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, dst, group), dist.P2POp(dist.irecv, received, src, group)]
    )

    def wait() -> Tensor:
        for work in works:
            work.wait()
        return received

    return wait
