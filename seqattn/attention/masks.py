"""A mask is a small value: which keys are real, whether it is causal, where the queries stand."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from seqattn import ops
from seqattn.errors import UserError


def positions_of(real: Tensor) -> Tensor:
    """Positions that count real tokens only, so that padding on either side moves nothing.

    Args:
        real: (B, S) bool, True where a token stands.

    Returns:
        (S,) where every row starts with a token, else (B, S); padding before the first gets 0.
        Where sequences are split over ranks, (B, S) positions in whole ones.
    """
    before = tokens_before(real)
    if before is not None:
        return (before + real.long().cumsum(dim=1) - 1).clamp(min=0)
    if tokens_begin(real):
        return torch.arange(real.shape[1], device=real.device)
    return (real.long().cumsum(dim=1) - 1).clamp(min=0)


_known = ContextVar("padded right", default=False)  # of this thread alone


@contextmanager
def padded_right() -> Iterator[None]:
    """Within the block no padding stands before a token, as in all batches of `data`.

    Elsewhere ids are looked at, and looking at what is on a GPU waits for all of its work.
    """
    before = _known.set(True)
    try:
        yield
    finally:
        _known.reset(before)


def padded_as_now() -> AbstractContextManager[None]:
    """A block in which as much is known of padding as here, for what is computed again later."""
    compiles = torch.compiler.is_compiling()  # to code that asks nobody
    return nullcontext() if compiles or not _known.get() else padded_right()


def tokens_begin(real: Tensor) -> bool:
    """Whether every row of real (B, S) begins with a token, as far as is known."""
    if torch.compiler.is_compiling():
        return False
    return _known.get() or bool(real[:, 0].all())


def all_at_hand(condition: Tensor) -> bool:
    """Whether all of it holds, on a CPU; False elsewhere, where looking would wait for a GPU."""
    return ops.at_hand(condition) and bool(condition.all())


def real_first(real: Tensor | None) -> Tensor | None:
    """The order that puts every row's tokens first, in their own order, and its padding last.

    For kernels that cut a sequence into pieces, which then never depend on padding: gather with it
    before, with its `argsort(dim=1)` after.

    Args:
        real: (B, S) bool, True where a token stands; None where all do.

    Returns:
        (B, S) indices, or None where the tokens already stand first.
    """
    if real is None:
        return None
    compiles = torch.compiler.is_compiling()
    if not compiles and (_known.get() or not bool((real[:, 1:] & ~real[:, :-1]).any())):
        return None
    return (~real).byte().argsort(dim=1, stable=True)


class Visible(NamedTuple):
    """What a softmax over keys may count, each row of it having something to count.

    Args:
        keys: bool, broadcastable to (B, H, T, S); all True for a query with nothing to look at.
        alone: bool, broadcastable to (B, H, T, 1): the queries with nothing to look at; None for
            none.
    """

    keys: Tensor
    alone: Tensor | None


@dataclass(frozen=True)
class Mask:
    """What each query may look at. True = may look.

    Args:
        query_positions: (T,) or (B, T), positions of the queries.
        key_positions: (S,) or (B, S), positions of the keys, cached ones included.
        real: (B, S) bool, True where a key is a token; None where all are.
        causal: a query sees only the keys that do not stand after it.
        extra: the user's own mask, bool, broadcastable to (B, H, T, S); None for none.
        real_queries: (B, T) bool, True where a query is a token; None where all count as such. It
            hides nothing: it is for what is summed or counted over queries.
    """

    query_positions: Tensor
    key_positions: Tensor
    real: Tensor | None = None
    causal: bool = False
    extra: Tensor | None = None
    real_queries: Tensor | None = None

    @classmethod
    def full(cls, real: Tensor) -> "Mask":
        """Every token sees every token. Args: real: (B, S) bool."""
        positions = positions_of(real)
        return cls(positions, positions, real, real_queries=real)

    def joined(self, extra: Tensor | None) -> "Mask":
        """The same mask with a bool tensor joined to it by "and"."""
        if extra is None:
            return self
        return replace(self, extra=extra if self.extra is None else self.extra & extra)

    @property
    def queries(self) -> int:
        """T, the number of queries."""
        return self.query_positions.shape[-1]

    @property
    def keys(self) -> int:
        """S, the number of keys; the last T of them are the queries' own where it is causal."""
        return self.key_positions.shape[-1]

    def last_keys(self, count: int) -> Tensor:
        """Positions of the last `count` keys; the queries' tensor itself where these are the keys.

        A position scheme then makes its tables for both, and for all layers, once.
        """
        same = self.causal or self.key_positions is self.query_positions
        if same and count == self.queries:
            return self.query_positions
        return self.key_positions[..., -count:]

    @property
    def is_plain_causal(self) -> bool:
        """Whether the causal triangle over equal lengths is all there is to it."""
        return (
            self.causal and self.real is None and self.extra is None and self.queries == self.keys
        )

    def dense(self) -> Tensor | None:
        """The mask as a bool tensor broadcastable to (B, H, T, S); None where all is allowed."""
        allowed = self.extra
        if self.real is not None:
            real = self.real[:, None, None, :]
            allowed = real if allowed is None else allowed & real
        if self.causal and self.queries > 1:
            triangle = torch.ones(
                self.queries, self.keys, dtype=torch.bool, device=self.query_positions.device
            ).tril(self.keys - self.queries)
            allowed = triangle if allowed is None else allowed & triangle
        return allowed

    @property
    def visible(self) -> Visible | None:
        """`dense` made safe for a softmax, which of a row of -inf makes NaN; None for no mask.

        Made once, since every layer asks for it.
        """
        if torch.compiler.is_compiling():
            return self._visible()
        known = vars(self)
        if "made_visible" not in known:
            known["made_visible"] = self._visible()
        made: Visible | None = known["made_visible"]
        return made

    def _visible(self) -> Visible | None:
        allowed = self.dense()
        if allowed is None:
            return None
        seeing = allowed.any(dim=-1, keepdim=True)
        if all_at_hand(seeing):
            return Visible(allowed, None)
        alone = ~seeing
        return Visible(allowed | alone, alone)


_groups: list[dist.ProcessGroup] = []  # that sequences are split over, the last one now


def split_group() -> dist.ProcessGroup | None:
    """The group that sequences are split over now; None where each process has them whole."""
    return _groups[-1] if _groups else None


@contextmanager
def split_over(group: dist.ProcessGroup) -> Iterator[None]:
    """Within the block, sequences are split over `group`, rank r holding the r-th part."""
    _groups.append(group)
    try:
        yield
    finally:
        _groups.pop()


def tokens_before(real: Tensor) -> Tensor | None:
    """How many real tokens of each sentence the ranks before this one hold: (B, 1).

    None where sequences are not split. Args: real: (B, T) bool, this rank's part.
    """
    group = split_group()
    if group is None:
        return None
    sizes = gathered(torch.tensor(real.shape, device=real.device), group)
    if (sizes != sizes[0]).any():
        raise UserError(
            "a sequence must be split evenly, padded to a length that the ranks divide; they hold "
            f"parts of {', '.join(' x '.join(map(str, size)) for size in sizes.tolist())}"
        )
    counts = gathered(real.sum(dim=1), group)  # (ranks, B)
    return counts[: dist.get_rank(group)].sum(dim=0)[:, None]


def gathered(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """What every rank of `group` has as `x`, by rank: (ranks, ...)."""
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts)
