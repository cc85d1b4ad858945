"""Reformer's attention: a query sees the keys that hash near it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor

from seqattn import ops
from seqattn.attention.base import Abilities
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import EncoderKernel, HeadShape
from seqattn.attention.kernels.parts.merging import Partial, merged, powers_
from seqattn.attention.masks import Mask
from seqattn.checking import Count, Seed
from seqattn.ops.precision import wide
from seqattn.positions.base import Position

Rounds = Annotated[int, Ge(1), Le(1_000)]
ITSELF = -1e5  # a token's score with itself, which counts for nothing beside any other
# one rotation sorts into 2^6 buckets at most; more are the pairs of two rotations' buckets
FACTOR_BITS = 6


class LSHKernel(EncoderKernel):
    """Softmax over the keys that hash near a query (Kitaev et al. 2020, arXiv 2001.04451, eq. 6).

    Queries are keys, and a key is its query at length sqrt(Dh), which with the usual scale is the
    published unit length. Each round rotates at random, takes the nearest axis as a token's
    bucket, sorts by bucket and cuts into chunks; a query sees its chunk and the one before, in
    the first chunk the last. So up to two chunks are full attention. Rounds are merged by their
    log-sum-exp, a key counting in the first round that finds it, which sums to the same as the
    published division by the number of rounds that do. A token sees itself only where it sees
    nothing else.

    Buckets and chunks follow a sentence's own tokens, whatever its padding. Time T log T +
    rounds*T*bucket_size*D, memory rounds*T*bucket_size a head, no cache. Not causal, as later
    tokens move the borders of chunks, nor cross or incremental: an encoder's self-attention.

    Args:
        bucket_size: tokens of a chunk.
        rounds: hashes of every token; more find more of the near keys.
        seed: of the rotations.
    """

    abilities = Abilities(
        hooks=frozenset({"embed", "rotate"}), dropout=True, weights=True, shared=True
    )
    only_padding: ClassVar[bool] = False
    unlike_heads = "their rotations are drawn together"
    rotations: Tensor

    def __init__(
        self, shape: HeadShape, bucket_size: Count = 64, rounds: Rounds = 4, seed: Seed = 0
    ) -> None:
        super().__init__(shape)
        self.bucket_size = bucket_size
        rotations = random_rotations(rounds, shape.num_heads, shape.head_dim, seed)
        self.register_buffer("rotations", rotations, persistent=False)  # the seed is kept instead

    def context(self, query: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        length = query.shape[2]
        spare = -length % min(self.bucket_size, length)
        x = F.pad(position.rotate(query, mask.query_positions), (0, 0, 0, spare)).contiguous()
        values = F.pad(new.values, (0, 0, 0, spare)).contiguous()
        real = mask.real
        if real is None:
            real = torch.ones(len(x), length, dtype=torch.bool, device=x.device)
        real = F.pad(real, (0, spare))
        chunks = self._chunks(x, real)
        unit = F.normalize(wide(x), dim=3) * self.head_dim**0.5
        keys = (unit * position.score_scale(self.head_dim)).to(x.dtype)
        dropout = self.dropout if self.training else 0.0
        if self.watched or mask.extra is not None:
            found = chunks.found(real)[:, :, :length, :length]
            found = found if mask.extra is None else found & mask.extra
            weights = _weights(x[:, :, :length], keys[:, :, :length], found).to(values.dtype)
            used = self.settled(weights, lambda: found)
            if used is not None or mask.extra is not None:
                used = weights if used is None else used
                return ops.drop(used, dropout) @ new.values
        rounds = []
        for number, places in enumerate(chunks.places):
            queries, seen = chunks.tokens(number)
            allowed = chunks.new(number, queries, seen, real)
            scores = _scores(_taken(x, queries), _taken(keys, seen), queries, seen)
            powers, peak = powers_(scores, allowed)
            dropped = ops.drop(powers, dropout).to(values.dtype)
            context = wide(ops.product(dropped, _taken(values, seen)))
            sums = context, powers.sum(dim=4, keepdim=True), peak
            rounds.append(Partial(*(_at(part.flatten(2, 3), places) for part in sums)))
        return merged(rounds)[:, :, :length].to(values.dtype)

    @torch.no_grad()
    def _chunks(self, x: Tensor, real: Tensor) -> "Chunks":
        size = min(self.bucket_size, real.shape[1])
        rotations = self.rotations
        if real.shape[1] <= 2 * size:  # two chunks see each other in any round
            rotations = rotations[:1]
        return Chunks.of(bucket_ids(x, real, rotations, self.bucket_size), real, size)


def _weights(x: Tensor, keys: Tensor, found: Tensor) -> Tensor:
    """The weights written out: (B, H, S, S), from which of them were found."""
    tokens = torch.arange(x.shape[2], device=x.device)
    powers, _ = powers_(_scores(x, keys, tokens, tokens), found)
    total = powers.sum(dim=3, keepdim=True)
    return powers / total.masked_fill(total == 0, 1.0)


def _scores(q: Tensor, k: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """(..., m, n) of tokens (..., m) and (..., n), the largest tensor: filled in place."""
    itself = queries[..., None] == keys[..., None, :]
    return wide(ops.product(q, k.mT)).masked_fill_(itself, ITSELF)


def _at(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, S, N) at index (B, H, M)."""
    first = x.shape[2] * torch.arange(x.shape[0] * x.shape[1], device=x.device)
    rows = index + first.view(x.shape[0], -1, 1)
    return x.flatten(0, 2).index_select(0, rows.flatten()).view(*index.shape, -1)


def _taken(x: Tensor, tokens: Tensor) -> Tensor:
    """(B, H, S, N) at tokens (B, H, C, m) -> (B, H, C, m, N)."""
    return _at(x, tokens.flatten(2)).unflatten(2, tokens.shape[2:])


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
    """The nearest of the first 2^bits axes, a column being one axis and its opposite: (B, H, S)."""
    half = (2**bits // 2)[:, None, None]
    unused = torch.arange(rotated.shape[3], device=rotated.device) >= half[..., None]
    axis = rotated.abs().masked_fill(unused, -1.0).argmax(dim=3)
    opposite = rotated.gather(3, axis[..., None])[..., 0] < 0
    return axis + half * opposite


@dataclass(frozen=True)
class Chunks:
    """Tokens sorted by bucket and cut into chunks, in every round.

    Beside each chunk stands the one before, beside the first the last that holds a token.
    """

    order: Tensor  # (rounds, B, H, S) the tokens, sorted; padding last
    places: Tensor  # (rounds, B, H, S) where each token went
    before: Tensor  # (B, S / size) the chunk beside each
    size: int  # tokens of a chunk; divides S

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
        """Which keys count in a round: real ones, once, that no earlier round has found.

        Args:
            number: of the round, whose `tokens` are given as `queries` and `keys`.
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
