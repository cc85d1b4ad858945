"""Reformer's attention: a query sees the keys that hash near it."""

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.attention.base import Abilities, HeadShape
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.parts.encoder_only import EncoderKernel
from seqattn.attention.kernels.parts.hashing import Chunks, bucket_ids, random_rotations
from seqattn.attention.kernels.parts.merging import Partial, merged, powers_
from seqattn.attention.masks import Mask
from seqattn.checking import Count, Seed, checked
from seqattn.ops.precision import wide
from seqattn.positions.base import Position

Rounds = Annotated[int, Ge(1), Le(1_000)]
ITSELF = -1e5
"""A token's score with itself, which counts for nothing beside any other."""


@checked
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
        shape: numbers and width of the heads, and the dropout.
        bucket_size: tokens of a chunk.
        rounds: hashes of every token; more find more of the near keys.
        seed: of the rotations.
    """

    abilities = Abilities(
        hooks=frozenset({"embed", "rotate"}), dropout=True, weights=True, shared=True
    )
    only_padding: ClassVar[bool] = False
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
        if self.observer is not None:
            found = chunks.found(real)[:, :, :length, :length]
            found = found if mask.extra is None else found & mask.extra
            weights = _weights(x[:, :, :length], keys[:, :, :length], found).to(values.dtype)
            self.observer(weights)
            if self.keep_weight_gradients:
                return F.dropout(weights, self.dropout, self.training) @ new.values
        rounds = []
        for number, places in enumerate(chunks.places):
            queries, seen = chunks.tokens(number)
            allowed = chunks.new(number, queries, seen, real)
            if mask.extra is not None:
                allowed = allowed & _allowed(mask.extra, queries, seen, length)
            scores = _scores(_taken(x, queries), _taken(keys, seen), queries, seen)
            powers, peak = powers_(scores, allowed)
            dropped = F.dropout(powers, self.dropout, self.training).to(values.dtype)
            context = wide(dropped @ _taken(values, seen))
            sums = context, powers.sum(dim=4, keepdim=True), peak
            rounds.append(Partial(*(_at(part.flatten(2, 3), places) for part in sums)))
        return merged(rounds)[:, :, :length].to(values.dtype)

    @torch.no_grad()
    def _chunks(self, x: Tensor, real: Tensor) -> Chunks:
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
    return wide(q @ k.transpose(-1, -2)).masked_fill_(itself, ITSELF)


def _at(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, S, N) at index (B, H, M)."""
    first = x.shape[2] * torch.arange(x.shape[0] * x.shape[1], device=x.device)
    rows = index + first.view(x.shape[0], -1, 1)
    return x.flatten(0, 2).index_select(0, rows.flatten()).view(*index.shape, -1)


def _taken(x: Tensor, tokens: Tensor) -> Tensor:
    """(B, H, S, N) at tokens (B, H, C, m) -> (B, H, C, m, N)."""
    return _at(x, tokens.flatten(2)).unflatten(2, tokens.shape[2:])


def _allowed(extra: Tensor, queries: Tensor, keys: Tensor, length: int) -> Tensor:
    """The user's mask (B, H, T, S) at every block's pairs, of any bool where padding was added."""
    batch, heads = (torch.arange(size, device=keys.device) for size in keys.shape[:2])
    every = extra.expand(len(batch), len(heads), length, length)
    queries, keys = (x.clamp(max=length - 1) for x in (queries, keys))
    rows = batch.view(-1, 1, 1, 1, 1), heads.view(-1, 1, 1, 1)
    return every[(*rows, queries[..., None], keys[..., None, :])]
