"""Reformer's attention: a query sees the keys that hash near it."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import Abilities, Kernel
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.parts.hashing import Chunks, bucket_ids, random_rotations
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position

ITSELF = -1e5
"""A token's score with itself, which counts for nothing beside any other."""
LOWEST = -1e30
"""Below every score."""


class LSHKernel(Kernel):
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
        num_heads: query heads H.
        num_kv_heads: as many.
        head_dim: width of a head Dh.
        dropout: share of attention weights dropped in training, 0 to 1.
        bucket_size: tokens of a chunk.
        rounds: hashes of every token; more find more of the near keys.
        seed: of the rotations.

    Raises:
        UserError: for a size below 1.
    """

    abilities = Abilities(
        bidirectional=True,
        causal=False,
        cross=False,
        incremental=False,
        hooks=frozenset({"embed", "rotate"}),
        dropout=True,
        weights=True,
        shared=True,
    )
    rotations: Tensor

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        bucket_size: int = 64,
        rounds: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__(num_heads, num_kv_heads, head_dim, dropout)
        for name, size in (("bucket_size", bucket_size), ("rounds", rounds)):
            if size < 1:
                raise UserError(f"attention.kernel.{name} must be at least 1, got {size}")
        self.bucket_size = bucket_size
        rotations = random_rotations(rounds, num_heads, head_dim, seed)
        self.register_buffer("rotations", rotations, persistent=False)  # the seed is kept instead

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        if mask.causal:
            raise UserError("LSHKernel cannot be causal; it fits an encoder's self-attention")
        length = query.shape[2]
        spare = -length % min(self.bucket_size, length)
        x = F.pad(position.rotate(query, mask.query_positions), (0, 0, 0, spare)).contiguous()
        values = F.pad(new.values, (0, 0, 0, spare)).contiguous()
        real = F.pad(_real(query, mask), (0, spare))
        chunks = self._chunks(x, real)
        unit = F.normalize(_exact(x), dim=3) * self.head_dim**0.5
        keys = (unit * position.score_scale(self.head_dim)).to(x.dtype)
        rounds = []
        for number in range(chunks.order.shape[0]):
            queries, seen = chunks.tokens(number)
            allowed = chunks.new(number, queries, seen, real)
            if mask.extra is not None:
                allowed = allowed & _allowed(mask.extra, queries, seen, length)
            scores = _scores(_taken(x, queries), _taken(keys, seen), queries, seen, allowed)
            beside = _taken(values, seen)
            rounds.append(self._round(scores, beside, queries, seen, chunks.places[number]))
        context, factors = merged(rounds)
        if self.observer is not None:
            weights = spread(rounds, factors)[:, :, :length, :length].to(values.dtype)
            self.observer(weights)
            if self.keep_weight_gradients:
                return F.dropout(weights, self.dropout, self.training) @ new.values
        return context[:, :, :length].to(values.dtype)

    @torch.no_grad()
    def _chunks(self, x: Tensor, real: Tensor) -> Chunks:
        size = min(self.bucket_size, real.shape[1])
        rotations = self.rotations
        if real.shape[1] <= 2 * size:  # two chunks see each other in any round
            rotations = rotations[:1]
        return Chunks.of(bucket_ids(x, real, rotations, self.bucket_size), real, size)

    def _round(
        self, scores: Tensor, values: Tensor, queries: Tensor, seen: Tensor, places: Tensor
    ) -> "Round":
        highest = scores.detach().amax(dim=4, keepdim=True).clamp(min=LOWEST)
        powers = scores.sub_(highest).exp_()
        dropped = F.dropout(powers, self.dropout, self.training)
        context = _exact(dropped.to(values.dtype) @ values)
        sums = highest, powers.sum(dim=4, keepdim=True), context
        return Round(queries, seen, powers, *(_at(part.flatten(2, 3), places) for part in sums))

    def make_cache(self, beams: int) -> Cache:
        raise UserError("LSHKernel cannot decode; it fits an encoder's self-attention")


class Round(NamedTuple):
    """What one round found; the last three in the tokens' own order."""

    queries: Tensor
    """(B, H, C, m) tokens of each chunk."""
    keys: Tensor
    """(B, H, C, 2m) tokens that they see."""
    powers: Tensor
    """(B, H, C, m, 2m) exp(score - highest)."""
    highest: Tensor
    """(B, H, S, 1)."""
    total: Tensor
    """(B, H, S, 1) sum of the powers."""
    context: Tensor
    """(B, H, S, Dh) sum of the values times the powers."""


def merged(rounds: list[Round]) -> tuple[Tensor, list[Tensor]]:
    """The context (B, H, S, Dh) of all rounds, and what to multiply each one's powers by."""
    highest = torch.stack([found.highest for found in rounds]).amax(dim=0)
    shares = [(found.highest - highest).exp() for found in rounds]
    total = torch.stack([share * found.total for share, found in zip(shares, rounds)]).sum(dim=0)
    total = total.masked_fill(total == 0, 1.0)  # nothing to see: a context of 0
    factors = [share / total for share in shares]
    context = factors[0] * rounds[0].context
    for factor, found in zip(factors[1:], rounds[1:]):
        context = context + factor * found.context
    return context, factors


def spread(rounds: list[Round], factors: list[Tensor]) -> Tensor:
    """The weights written out, (B, H, S, S)."""
    batch, heads, length, _ = factors[0].shape
    weights = factors[0].new_zeros(batch, heads, length, length)
    for factor, found in zip(factors, rounds):
        part = found.powers * _taken(factor, found.queries)
        weights = weights.index_put(_pairs(found.queries, found.keys), part, accumulate=True)
    return weights


def _real(query: Tensor, mask: Mask) -> Tensor:
    if mask.real is not None:
        return mask.real
    return torch.ones(query.shape[0], query.shape[2], dtype=torch.bool, device=query.device)


def _exact(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _at(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, S, N) at index (B, H, M)."""
    first = x.shape[2] * torch.arange(x.shape[0] * x.shape[1], device=x.device)
    rows = index + first.view(x.shape[0], -1, 1)
    return x.flatten(0, 2).index_select(0, rows.flatten()).view(*index.shape, -1)


def _taken(x: Tensor, tokens: Tensor) -> Tensor:
    """(B, H, S, N) at tokens (B, H, C, m) -> (B, H, C, m, N)."""
    return _at(x, tokens.flatten(2)).unflatten(2, tokens.shape[2:])


def _pairs(queries: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
    """Indices of every block's queries and keys into a tensor (B, H, T, S)."""
    batch, heads = (torch.arange(size, device=queries.device) for size in queries.shape[:2])
    return (
        batch[:, None, None, None, None],
        heads[:, None, None, None],
        queries[..., None],
        keys[..., None, :],
    )


def _allowed(extra: Tensor, queries: Tensor, keys: Tensor, length: int) -> Tensor:
    """The user's mask (B, H, T, S) at every block's pairs, of any bool where padding was added."""
    shape = (*queries.shape[:2], length, length)
    inside = queries.clamp(max=length - 1), keys.clamp(max=length - 1)
    return extra.expand(shape)[_pairs(*inside)]


def _scores(q: Tensor, k: Tensor, queries: Tensor, keys: Tensor, allowed: Tensor) -> Tensor:
    scores = _exact(q @ k.transpose(3, 4))  # (B, H, C, m, 2m), the largest: filled in place
    scores.masked_fill_(queries[..., None] == keys[..., None, :], ITSELF)
    return scores.masked_fill_(~allowed, -torch.inf)
