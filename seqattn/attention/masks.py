"""Masks: which keys are real, causality, and the positions of queries."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from seqattn import ops
from seqattn.errors import UserError
from seqattn.ops.gpu import row_bounds


def positions_of(real: Tensor) -> Tensor:
    """Return positions that count only real tokens, so that padding on either side has no effect.

    Args:
        real: (B, S) bool, True on tokens.

    Returns:
        (S,) if every row starts with a token, else (B, S); padding before the first gets 0. If
        sequences are split over ranks, (B, S) positions in the complete sequences.
    """
    offset = tokens_before(real)
    if offset is not None:
        return (offset + real.long().cumsum(dim=1) - 1).clamp(min=0)
    if tokens_begin(real):
        return torch.arange(real.shape[1], device=real.device)
    return (real.long().cumsum(dim=1) - 1).clamp(min=0)


Rows = Literal["any", "filled", "full"]
"""What is known of rows: nothing, that each has a token, or that none has padding."""
_assumed_rows: ContextVar[Rows | None] = ContextVar("padded right", default=None)  # per thread


@contextmanager
def padded_right(rows: Rows = "any") -> Iterator[None]:
    """Declare that within the block no padding precedes a token, as in all batches of `data`.

    Otherwise ids are inspected, which synchronizes a GPU.

    Args:
        rows: what else is known. Without padding there is no mask, which lets a GPU use flash
            attention; if each row has a token, no query is without visible keys.
    """
    token = _assumed_rows.set(rows)
    try:
        yield
    finally:
        _assumed_rows.reset(token)


def assumed_rows() -> Rows | None:
    """Return what the current block declares of rows; None if nothing does."""
    return _assumed_rows.get()


def padded_as_now() -> AbstractContextManager[None]:
    """Return a context that restores the current padding assumption, for recomputation."""
    if torch.compiler.is_compiling():  # the value is fixed at compile time
        return nullcontext()
    rows = _assumed_rows.get()
    return nullcontext() if rows is None else padded_right(rows)


def tokens_begin(real: Tensor) -> bool:
    """Return True if every row of real (B, S) is known to begin with a token."""
    if torch.compiler.is_compiling():
        return False
    return _assumed_rows.get() is not None or bool(real[:, 0].all())


def all_at_hand(condition: Tensor) -> bool:
    """Return True if all of `condition` holds, on a CPU; False elsewhere, to avoid a GPU sync."""
    return ops.at_hand(condition) and bool(condition.all())


def real_first(real: Tensor | None) -> Tensor | None:
    """Return the order that moves each row's tokens to the front and its padding to the end.

    It makes kernels that split a sequence independent of padding: gather with it before, and
    with its `argsort(dim=1)` after.

    Args:
        real: (B, S) bool, True on tokens; None if all are.

    Returns:
        (B, S) indices, or None if the tokens are already at the front.
    """
    if real is None:
        return None
    if not torch.compiler.is_compiling() and (
        _assumed_rows.get() is not None or not bool((real[:, 1:] & ~real[:, :-1]).any())
    ):
        return None
    return (~real).byte().argsort(dim=1, stable=True)


class Visible(NamedTuple):
    """Keys visible to a softmax, with at least one in each row.

    Args:
        keys: bool, broadcastable to (B, H, T, S); all True for a query without visible keys.
        empty_rows: bool, broadcastable to (B, H, T, 1), True for queries without visible keys;
            None if there are none.
    """

    keys: Tensor
    empty_rows: Tensor | None


@dataclass(frozen=True)
class Mask:
    """Keys that each query may attend to. True = may attend.

    Args:
        query_positions: (T,) or (B, T), positions of the queries.
        key_positions: (S,) or (B, S), positions of the keys, cached ones included.
        real: (B, S) bool, True where a key is a token; None if all are.
        causal: a query sees only keys at its own or earlier positions.
        extra: a further mask, such as the beam that a key belongs to or a sparse pattern; bool,
            broadcastable to (B, H, T, S); or None.
        real_queries: (B, T) bool, True where a query is a token; None if all are. It hides
            nothing, and is used for sums and counts over queries.
        bounds: where the tokens of each row end (`ops.gpu.row_bounds`), if `real` alone hides
            keys, all after the tokens; else None.
        all_see: every query is known to see a key.
    """

    query_positions: Tensor
    key_positions: Tensor
    real: Tensor | None = None
    causal: bool = False
    extra: Tensor | None = None
    real_queries: Tensor | None = None
    bounds: Tensor | None = None
    all_see: bool = False

    @classmethod
    def full(cls, real: Tensor) -> "Mask":
        """Return the mask in which every token sees every token. Args: real: (B, S) bool."""
        positions = positions_of(real)
        rows = None if torch.compiler.is_compiling() else _assumed_rows.get()
        if rows == "full":
            return cls(positions, positions)
        bounds = None if rows is None else row_bounds(real)
        all_see = rows == "filled"
        return cls(positions, positions, real, real_queries=real, bounds=bounds, all_see=all_see)

    def with_extra(self, extra: Tensor | None) -> "Mask":
        """Return the mask combined with a bool tensor by logical and."""
        if extra is None:
            return self
        extra = extra if self.extra is None else self.extra & extra
        return replace(self, extra=extra, bounds=None, all_see=False)

    def seen_by(self, query: "Mask") -> "Mask":
        """Return this non-causal mask for the queries of another mask."""
        mask = replace(self, query_positions=query.query_positions, real_queries=query.real_queries)
        if not torch.compiler.is_compiling():
            vars(mask)["cached_visible"] = self.visible  # the same for all queries
        return mask

    @property
    def queries(self) -> int:
        """Number of queries T."""
        return self.query_positions.shape[-1]

    @property
    def keys(self) -> int:
        """Number of keys S; if causal, the last T are those of the queries."""
        return self.key_positions.shape[-1]

    def last_keys(self, count: int) -> Tensor:
        """Return positions of the last `count` keys; the queries' tensor itself if both coincide.

        A position scheme then computes its tables once, for both and for all layers.
        """
        coincide = self.causal or self.key_positions is self.query_positions
        if coincide and count == self.queries:
            return self.query_positions
        return self.key_positions[..., -count:]

    @property
    def is_plain_causal(self) -> bool:
        """True if the mask is only the causal triangle over equal lengths."""
        return (
            self.causal and self.real is None and self.extra is None and self.queries == self.keys
        )

    def dense(self) -> Tensor | None:
        """Return the mask as bool, broadcastable to (B, H, T, S); None if all is allowed."""
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
        """Return `dense` made safe for a softmax, which is NaN for rows of -inf; None for no mask.

        Cached, as every layer calls it.
        """
        if torch.compiler.is_compiling():
            return self._visible()
        cache = vars(self)
        if "cached_visible" not in cache:
            cache["cached_visible"] = self._visible()
        visible: Visible | None = cache["cached_visible"]
        return visible

    def _visible(self) -> Visible | None:
        allowed = self.dense()
        if allowed is None:
            return None
        if self.all_see:
            return Visible(allowed, None)
        seeing = allowed.any(dim=-1, keepdim=True)
        if all_at_hand(seeing):
            return Visible(allowed, None)
        empty_rows = ~seeing
        return Visible(allowed | empty_rows, empty_rows)


_groups: list[dist.ProcessGroup] = []  # groups that sequences are split over, innermost last


def split_group() -> dist.ProcessGroup | None:
    """Return the group that sequences are currently split over; None if they are not split."""
    return _groups[-1] if _groups else None


@contextmanager
def split_over(group: dist.ProcessGroup) -> Iterator[None]:
    """Split sequences over `group` within the block, rank r holding the r-th part."""
    _groups.append(group)
    try:
        yield
    finally:
        _groups.pop()


def tokens_before(real: Tensor) -> Tensor | None:
    """Return the number of each sentence's real tokens on earlier ranks: (B, 1).

    None if sequences are not split. Args: real: (B, T) bool, this rank's part.
    """
    group = split_group()
    if group is None:
        return None
    sizes = gathered(torch.tensor(real.shape, device=real.device), group)
    if (sizes != sizes[0]).any():
        raise UserError(
            "all ranks must have parts of the same size, got "
            f"{', '.join(' x '.join(map(str, size)) for size in sizes.tolist())}; pad sequences to "
            "a multiple of the number of ranks"
        )
    counts = gathered(real.sum(dim=1), group)  # (ranks, B)
    return counts[: dist.get_rank(group)].sum(dim=0)[:, None]


def gathered(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return `x` of every rank of `group`, by rank: (ranks, ...)."""
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts)
