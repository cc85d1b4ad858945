"""Locality-sensitive hashing: which tokens share a chunk, by random rotations and a sort."""

from dataclasses import dataclass

import torch
from torch import Tensor

from seqattn.ops.precision import wide

FACTOR_BITS = 6
"""One rotation sorts into 2^6 buckets at most; more are the pairs of two rotations' buckets."""


def random_rotations(rounds: int, num_heads: int, head_dim: int, seed: int) -> Tensor:
    """(rounds, 2, H, Dh, 32) the axes of two rotations for every round and head."""
    source = torch.Generator().manual_seed(seed)
    shape = (rounds, 2, num_heads, head_dim, 2 ** (FACTOR_BITS - 1))
    return torch.randn(shape, generator=source)


def bucket_ids(x: Tensor, real: Tensor, rotations: Tensor, size: int) -> Tensor:
    """The bucket of every token in every round (Kitaev et al. 2020, arXiv 2001.04451, section 2).

    Args:
        x: (B, H, S, Dh).
        real: (B, S) bool, True where a token stands.
        rotations: as `random_rotations` gives them.
        size: tokens of a chunk; a sentence has the power of 2 in 1 to 2 buckets a whole chunk.

    Returns:
        (rounds, B, H, S) whole numbers; padding in a last bucket of its own.
    """
    x = wide(x)
    powers = 2 ** torch.arange(1, 2 * FACTOR_BITS + 1, device=x.device)
    bits = (2 * (real.sum(dim=1, keepdim=True) // size) >= powers).sum(dim=1)  # (B,)
    first = torch.where(bits > FACTOR_BITS, bits // 2, bits)
    most = (2 * (x.shape[2] // size)).bit_length() - 1  # bits where nothing is padding
    columns = 2 ** max(min(most, FACTOR_BITS) - 1, 0)
    found = []
    with torch.autocast(x.device.type, enabled=False):
        for pair in rotations.to(x.dtype)[..., :columns]:
            bucket = _nearest_axis(x @ pair[0], first)
            if most > FACTOR_BITS:
                second = _nearest_axis(x @ pair[1], bits - first)
                bucket = bucket + second * (2**first)[:, None, None]
            found.append(bucket.masked_fill(~real[:, None], 4**FACTOR_BITS))
    return torch.stack(found)


def _nearest_axis(rotated: Tensor, bits: Tensor) -> Tensor:
    """The nearest of the first 2^bits axes, each column one axis and its opposite.

    Args:
        rotated: (B, H, S, columns).
        bits: (B,).

    Returns:
        (B, H, S) from 0; 0 where bits is 0.
    """
    half = (2**bits // 2)[:, None, None]
    unused = torch.arange(rotated.shape[3], device=rotated.device) >= half[..., None]
    axis = rotated.abs().masked_fill(unused, -1.0).argmax(dim=3)
    opposite = rotated.gather(3, axis[..., None])[..., 0] < 0
    return axis + half * opposite


@dataclass(frozen=True)
class Chunks:
    """Tokens sorted by bucket and cut into chunks, in every round.

    Args:
        order: (rounds, B, H, S) the tokens, sorted; padding last.
        places: (rounds, B, H, S) where each token went.
        before: (B, S / size) the chunk beside each: the one before, for the first the last that
            holds a token.
        size: tokens of a chunk; divides S.
    """

    order: Tensor
    places: Tensor
    before: Tensor
    size: int

    @classmethod
    def of(cls, buckets: Tensor, real: Tensor, size: int) -> "Chunks":
        """Sorts by bucket, and in a bucket by place; `size` divides S."""
        order = buckets.argsort(dim=3, stable=True)
        last = ((real.sum(dim=1, keepdim=True) - 1) // size).clamp(min=0)
        number = torch.arange(real.shape[1] // size, device=real.device)
        before = torch.where(number == 0, last, torch.minimum(number - 1, last))
        return cls(order, order.argsort(dim=3), before, size)

    def tokens(self, number: int) -> tuple[Tensor, Tensor]:
        """One round's queries (B, H, C, size), and the keys beside them (B, H, C, 2*size)."""
        queries = self.order[number].unflatten(2, (-1, self.size))
        beside = queries.gather(2, self.before[:, None, :, None].expand_as(queries))
        return queries, torch.cat((queries, beside), dim=3)

    def new(self, number: int, queries: Tensor, keys: Tensor, real: Tensor) -> Tensor:
        """Which keys count here: real ones, once, that no earlier round has found.

        Args:
            number: of the round.
            queries: (B, H, C, size), as `tokens` gives them.
            keys: (B, H, C, 2*size), as `tokens` gives them.
            real: (B, S) bool.

        Returns:
            (B, H, C, size or 1, 2*size) bool.
        """
        at = torch.arange(self.before.shape[1], device=real.device)
        twice = (self.before == at)[:, :, None] & (
            torch.arange(2 * self.size, device=real.device) >= self.size
        )  # (B, C, 2*size) a chunk that stands beside itself
        counts = _looked_up(real[:, None], keys) & ~twice[:, None]
        allowed = counts[..., None, :]
        for earlier in self.places[:number] // self.size:  # the chunk of every token
            own = _looked_up(earlier, queries)[..., None]
            beside = _looked_up(self.before[:, None], own)
            theirs = _looked_up(earlier, keys)[..., None, :]
            allowed = allowed & (theirs != own) & (theirs != beside)
        return allowed

    def found(self, real: Tensor) -> Tensor:
        """Which real keys any round finds for each token: bool (B, H, S, S). Args: as `new`."""
        chunk = self.places // self.size  # of every token, (rounds, B, H, S)
        beside = torch.stack([_looked_up(self.before[:, None], own) for own in chunk])
        theirs = chunk[..., None, :]
        near = (theirs == chunk[..., None]) | (theirs == beside[..., None])
        return near.any(dim=0) & real[:, None, None]


def _looked_up(table: Tensor, index: Tensor) -> Tensor:
    """Entries of table (B, H or 1, N) at index (B, H, ...)."""
    table = table.expand(-1, index.shape[1], -1)
    return table.gather(2, index.flatten(2)).view(index.shape)
