"""Reformer's LSH attention: a query sees the keys that hash near it."""

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
from seqattn.attention.kernels.shared.partial_softmax import Partial, merged, powers_
from seqattn.attention.masks import Mask
from seqattn.checking import Count, Seed
from seqattn.ops.precision import wide
from seqattn.positions.base import Position

Rounds = Annotated[int, Ge(1), Le(1_000)]
ITSELF = -1e5  # a token's score with itself, negligible beside any other
# one rotation gives at most 2^6 buckets; for more, the buckets of two rotations are combined
FACTOR_BITS = 6


class LSHKernel(EncoderKernel):
    """Softmax over the keys that hash near a query (Kitaev et al. 2020, arXiv 2001.04451, eq. 6).

    Keys are queries scaled to length sqrt(Dh), which with the usual factor is the published unit
    length. Each round applies a random rotation, uses the nearest axis as a token's bucket, sorts
    by bucket and splits into chunks; a query sees its chunk and the previous one (for the first
    chunk, the last). So a sequence of up to two chunks gets full attention. Rounds are
    merged by their log-sum-exp, counting a key only in the first round that matches it, which
    equals the published division by the number of matching rounds. A token sees itself only if it
    sees nothing else.

    Buckets and chunks depend only on a sentence's tokens, not on padding. Time T log T +
    rounds*T*bucket_size*D, memory rounds*T*bucket_size per head, no cache. Only for an encoder's
    self-attention: not causal, as later tokens move the chunk boundaries, nor cross or incremental.

    Args:
        bucket_size: tokens per chunk.
        rounds: number of hashes per token; more rounds match more of the nearby keys.
        seed: seed of the rotations.
    """

    abilities = Abilities(
        hooks=frozenset({"embed", "rotate"}), dropout=True, weights=True, shared=True
    )
    only_padding: ClassVar[bool] = False
    unlike_heads = "the rotations of all heads are drawn together"
    rotations: Tensor

    def __init__(
        self, shape: HeadShape, bucket_size: Count = 64, rounds: Rounds = 4, seed: Seed = 0
    ) -> None:
        super().__init__(shape)
        self.bucket_size = bucket_size
        self.sees_all_up_to = 2 * bucket_size
        rotations = random_rotations(rounds, shape.num_heads, shape.head_dim, seed)
        self.register_buffer("rotations", rotations, persistent=False)  # the seed is saved instead

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
        if self.is_observed or mask.extra is not None:
            matches = chunks.matches(real)[:, :, :length, :length]
            matches = matches if mask.extra is None else matches & mask.extra
            weights = _weights(x[:, :, :length], keys[:, :, :length], matches).to(values.dtype)
            used = self.edit_and_show(weights, lambda: matches)
            if used is not None or mask.extra is not None:
                used = weights if used is None else used
                return ops.drop(used, dropout) @ new.values
        rounds = []
        for number, ranks in enumerate(chunks.ranks):
            queries, candidates = chunks.tokens(number)
            allowed = chunks.new(number, queries, candidates, real)
            scores = _scores(
                _gathered(x, queries), _gathered(keys, candidates), queries, candidates
            )
            powers, peak = powers_(scores, allowed)
            dropped = ops.drop(powers, dropout).to(values.dtype)
            context = wide(ops.product(dropped, _gathered(values, candidates)))
            sums = context, powers.sum(dim=4, keepdim=True), peak
            rounds.append(Partial(*(_at(part.flatten(2, 3), ranks) for part in sums)))
        return merged(rounds)[:, :, :length].to(values.dtype)

    @torch.no_grad()
    def _chunks(self, x: Tensor, real: Tensor) -> "Chunks":
        size = min(self.bucket_size, real.shape[1])
        rotations = self.rotations
        if real.shape[1] <= 2 * size:  # two chunks see each other in any round
            rotations = rotations[:1]
        return Chunks.of(bucket_ids(x, real, rotations, self.bucket_size), real, size)


def _weights(x: Tensor, keys: Tensor, matches: Tensor) -> Tensor:
    """Materialize the weights (B, H, S, S). Args: matches: the same shape, bool."""
    tokens = torch.arange(x.shape[2], device=x.device)
    powers, _ = powers_(_scores(x, keys, tokens, tokens), matches)
    total = powers.sum(dim=3, keepdim=True)
    return powers / total.masked_fill(total == 0, 1.0)


def _scores(q: Tensor, k: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Return scores (..., m, n) of tokens (..., m) and (..., n), modified in place for memory."""
    itself = queries[..., None] == keys[..., None, :]
    return wide(ops.product(q, k.mT)).masked_fill_(itself, ITSELF)


def _at(x: Tensor, index: Tensor) -> Tensor:
    """Gather rows of x (B, H, S, N) at index (B, H, M)."""
    first = x.shape[2] * torch.arange(x.shape[0] * x.shape[1], device=x.device)
    rows = index + first.view(x.shape[0], -1, 1)
    return x.flatten(0, 2).index_select(0, rows.flatten()).view(*index.shape, -1)


def _gathered(x: Tensor, tokens: Tensor) -> Tensor:
    """Gather x (B, H, S, N) at tokens (B, H, C, m): (B, H, C, m, N)."""
    return _at(x, tokens.flatten(2)).unflatten(2, tokens.shape[2:])


def random_rotations(rounds: int, num_heads: int, head_dim: int, seed: int) -> Tensor:
    """Return axes (rounds, 2, H, Dh, 32) of two rotations for every round and head."""
    source = torch.Generator().manual_seed(seed)
    shape = (rounds, 2, num_heads, head_dim, 2 ** (FACTOR_BITS - 1))
    return torch.randn(shape, generator=source)


def bucket_ids(x: Tensor, real: Tensor, rotations: Tensor, size: int) -> Tensor:
    """Hash every token in every round (Kitaev et al. 2020, arXiv 2001.04451, section 2).

    Args:
        x: (B, H, S, Dh).
        real: (B, S) bool, True on tokens.
        rotations: as returned by `random_rotations`.
        size: tokens per chunk; the number of buckets is a power of 2, 1 to 2 per full chunk.

    Returns:
        Bucket ids (rounds, B, H, S), with padding in a separate last bucket.
    """
    x = wide(x)
    powers = 2 ** torch.arange(1, 2 * FACTOR_BITS + 1, device=x.device)
    bits = (2 * (real.sum(dim=1, keepdim=True) // size) >= powers).sum(dim=1)  # (B,)
    first = torch.where(bits > FACTOR_BITS, bits // 2, bits)
    max_bits = (2 * (x.shape[2] // size)).bit_length() - 1  # bits without padding
    columns = 2 ** max(min(max_bits, FACTOR_BITS) - 1, 0)
    buckets = []
    with torch.autocast(x.device.type, enabled=False):
        for pair in rotations.to(x.dtype)[..., :columns]:
            bucket = _nearest_axis(x @ pair[0], first)
            if max_bits > FACTOR_BITS:
                second = _nearest_axis(x @ pair[1], bits - first)
                bucket = bucket + second * (2**first)[:, None, None]
            buckets.append(bucket.masked_fill(~real[:, None], 4**FACTOR_BITS))
    return torch.stack(buckets)


def _nearest_axis(rotated: Tensor, bits: Tensor) -> Tensor:
    """Return the nearest of the first 2^bits signed axes, two per column: (B, H, S)."""
    half = (2**bits // 2)[:, None, None]
    unused = torch.arange(rotated.shape[3], device=rotated.device) >= half[..., None]
    axis = rotated.abs().masked_fill(unused, -1.0).argmax(dim=3)
    opposite = rotated.gather(3, axis[..., None])[..., 0] < 0
    return axis + half * opposite


@dataclass(frozen=True)
class Chunks:
    """Tokens sorted by bucket and split into chunks, for every round.

    The neighbor of a chunk is the previous one; that of the first is the last with a token.
    """

    order: Tensor  # (rounds, B, H, S) token indices, sorted; padding last
    ranks: Tensor  # (rounds, B, H, S) sorted position of each token
    neighbors: Tensor  # (B, S / size) the neighbor of each chunk
    size: int  # tokens per chunk; divides S

    @classmethod
    def of(cls, buckets: Tensor, real: Tensor, size: int) -> "Chunks":
        """Sort tokens by bucket, and within a bucket by position; `size` divides S."""
        order = buckets.argsort(dim=3, stable=True)
        last = ((real.sum(dim=1, keepdim=True) - 1) // size).clamp(min=0)
        number = torch.arange(real.shape[1] // size, device=real.device)
        neighbors = torch.where(number == 0, last, torch.minimum(number - 1, last))
        return cls(order, order.argsort(dim=3), neighbors, size)

    def tokens(self, number: int) -> tuple[Tensor, Tensor]:
        """Return a round's queries (B, H, C, size) and their candidate keys (B, H, C, 2*size)."""
        queries = self.order[number].unflatten(2, (-1, self.size))
        beside = queries.gather(2, self.neighbors[:, None, :, None].expand_as(queries))
        return queries, torch.cat((queries, beside), dim=3)

    def new(self, number: int, queries: Tensor, keys: Tensor, real: Tensor) -> Tensor:
        """Return which keys count in a round: real, counted once, unmatched by an earlier round.

        Args:
            number: the round.
            queries, keys: its `tokens`.
            real: (B, S) bool.

        Returns:
            (B, H, C, size or 1, 2*size) bool.
        """
        at = torch.arange(self.neighbors.shape[1], device=real.device)
        twice = (self.neighbors == at)[:, :, None] & (
            torch.arange(2 * self.size, device=real.device) >= self.size
        )  # (B, C, 2*size) a chunk that is its own neighbor
        counts = _looked_up(real[:, None], keys) & ~twice[:, None]
        allowed = counts[..., None, :]
        for earlier in self.ranks[:number] // self.size:  # chunk of every token
            query_chunk = _looked_up(earlier, queries)[..., None]
            neighbor = _looked_up(self.neighbors[:, None], query_chunk)
            key_chunk = _looked_up(earlier, keys)[..., None, :]
            allowed = allowed & (key_chunk != query_chunk) & (key_chunk != neighbor)
        return allowed

    def matches(self, real: Tensor) -> Tensor:
        """Return the real keys that any round matches to each token: bool (B, H, S, S)."""
        chunk = self.ranks // self.size  # of every token, (rounds, B, H, S)
        beside = torch.stack([_looked_up(self.neighbors[:, None], index) for index in chunk])
        key_chunk = chunk[..., None, :]
        near = (key_chunk == chunk[..., None]) | (key_chunk == beside[..., None])
        return near.any(dim=0) & real[:, None, None]


def _looked_up(table: Tensor, index: Tensor) -> Tensor:
    """Gather entries of table (B, H or 1, N) at index (B, H, ...)."""
    table = table.expand(-1, index.shape[1], -1)
    return table.gather(2, index.flatten(2)).view(index.shape)
