"""Ring attention: one sequence over several ranks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache as once

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seqattn.attention.base import Attended, Attention, HeadShape
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.parts.ring_pass import Plan, ring_attention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from seqattn.attention.split import split_over
from seqattn.checking import Count, checked
from seqattn.errors import UserError
from seqattn.positions.base import Position


@checked
class RingKernel(SoftmaxKernel):
    """Softmax attention whose keys and values go around the ranks (Liu et al. 2023).

    Ring attention with blockwise softmax (arXiv 2310.01889, algorithm 1). Within
    `sequence_parallel` each of p ranks keeps its part of the queries, and attends to the part of
    the keys and values that is passing through while the next one is on its way. On one rank, and
    in decoding, it is the softmax kernel, and says so once in the log.

    Time n^2*d/p and memory n/p a rank, products a chunk of keys at a time in float32. A causal
    ring waits for its last rank, which sees everything. The cache is the softmax kernel's,
    2*G*Dh numbers a token. Bidirectional, causal and incremental; not cross.

    Args:
        shape: numbers and width of the heads, and the dropout.
        chunk: keys in a product at a time, at least 1.
    """

    abilities = replace(
        SoftmaxKernel.abilities, cross=False, hooks=frozenset({"embed", "rotate"}), dropout=False
    )

    def __init__(self, shape: HeadShape, chunk: Count = 1024) -> None:
        super().__init__(shape)
        self.chunk = chunk
        self.group: dist.ProcessGroup | None = None
        _say_what_it_is()

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        if self.group is None or self.group.size() == 1 or cache is not None:
            return super().forward(query, new, mask, position, cache, need_weights)
        if mask.extra is not None or self.observer is not None:
            what = "a mask of your own" if mask.extra is not None else "capture"
            raise UserError(f"{what} needs whole sequences; leave sequence_parallel for it")
        q = position.rotate(query, mask.query_positions)
        keys = position.rotate(new.keys, mask.key_positions)
        real = mask.real
        if real is None:
            real = torch.ones(len(keys), keys.shape[2], dtype=torch.bool, device=keys.device)
        plan = Plan(self.group, mask.causal, position.score_scale(self.head_dim), self.chunk)
        return Attended(ring_attention(q, keys, new.values, real, plan))


@once
def _say_what_it_is() -> None:
    logging.getLogger(__name__).warning(
        "ring attention is softmax attention on one rank and in decoding; "
        "seqattn.attention.kernels.ring.sequence_parallel splits sequences over several ranks"
    )


@contextmanager
def sequence_parallel(module: nn.Module, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Within the block, the ring attentions of `module` work on sequences split over ranks.

    Every rank of the group runs the same calls on its own part: rank r of p gets tokens
    r*n/p to (r+1)*n/p of every sentence, padding counted, so n must be padded to a multiple of p.
    Masks that are made in the block count positions over all ranks (`Mask.full`, `positions_of`),
    so that `model.encode(part)` works as it is:

        ids = source.chunk(size, dim=1)[rank]
        with sequence_parallel(model.encoder):
            memory = model.encode(ids)  # this rank's part of the memory
            ...backward...

    The backward pass belongs in the block too, and a parameter's gradient is then that of this
    rank's tokens: sum it over the ranks. It serves encoders, and attentions called one by one,
    causal ones too. The decoder of a Transformer reads a whole memory: gather its parts first.

    Args:
        module: what is run on parts; all its attentions must have the ring kernel.
        group: the ranks, in the order of the parts; None for all.

    Raises:
        UserError: without a process group, or for an attention that would see its part alone.
    """
    if not dist.is_initialized():
        raise UserError("sequence_parallel needs torch.distributed.init_process_group first")
    ranks = dist.group.WORLD if group is None else group
    assert ranks is not None
    kernels = []
    for name, attention in module.named_modules():
        if isinstance(attention, Attention):
            found = [part for part in attention.modules() if isinstance(part, RingKernel)]
            if not found:
                raise UserError(
                    f"{name or 'it'} attends by {attention.name}, which would see its own part of "
                    "a sequence alone; build it with attention=ring"
                )
            kernels += found
    for kernel in kernels:
        kernel.group = ranks
    try:
        with split_over(ranks):
            yield
    finally:
        for kernel in kernels:
            kernel.group = None
