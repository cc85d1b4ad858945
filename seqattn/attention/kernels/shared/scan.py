"""Scans for weights that factor into feature maps: sums over keys, by chunk and by token.

If the weight of key j for query i is q_i . k_j, the context of a query needs the keys only as
one matrix, the sum of k_j (outer) v_j (Katharopoulos et al. 2020, arXiv 2006.16236, eq. 5). All
values have a last channel of ones, so that the same matrix holds the sum for the normalizer.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn import ops
from seqattn.attention.cache import KeysValues
from seqattn.attention.fixed_cache import FixableCache
from seqattn.attention.kernels.shared.groups import per_group

LOWEST = -1e30  # log scale where there is no key; finite, so the difference of two is 0, not NaN


class Keys(NamedTuple):
    """Mapped keys, and their values.

    The weight of key j for query i is proportional to exp(log_scale_j) * q_i . k_j.

    Args:
        keys: (..., S, M), non-negative, 0 where there is no key.
        values: (..., S, Dh+1), the last channel 1.
        log_scale: (..., S), constants without gradient, LOWEST where there is no key; None if all
            are 0.
    """

    keys: Tensor
    values: Tensor
    log_scale: Tensor | None


class Sums(NamedTuple):
    """Sums over keys."""

    matrix: Tensor  # (..., M, Dh+1), the sum of exp(log_scale_j - maximum) k_j (outer) v_j
    maximum: Tensor | None  # (...), the largest log scale; None if all are 0


class SummedKeysValues(KeysValues):
    """Keys and values with their sums (B, G, M, Dh+1), for cross-attention."""

    sums: Tensor

    @classmethod
    def of(cls, pair: KeysValues, sums: Tensor) -> "SummedKeysValues":
        """Attach sums to keys and values."""
        summed = cls(*pair)
        summed.sums = sums
        return summed

    def keep(self, sentences: Tensor) -> "SummedKeysValues":
        return self.of(super().keep(sentences), self.sums.index_select(0, sentences))

    def tensors(self) -> list[Tensor]:
        return [*self, self.sums]


def summed(keys: Keys) -> Sums:
    """Return sums over all keys."""
    values, maximum = _scaled(keys)
    return Sums(ops.product(keys.keys.mT, values), maximum)


def seen_by(queries: Tensor, keys: Keys) -> Tensor:
    """Compute `queries @ summed(keys).matrix` through the weights, which is faster for few keys.

    Args:
        queries: mapped queries (B, H, T, M).
        keys: mapped keys (B, G, S, ...).

    Returns:
        The context and its normalizer (B, H, T, Dh+1).
    """
    return per_group(per_group(queries, keys.keys.mT), _scaled(keys)[0])


def _scaled(keys: Keys) -> tuple[Tensor, Tensor | None]:
    """Return values times exp(log_scale - maximum), and that maximum (...)."""
    if keys.log_scale is None:
        return keys.values, None
    maximum = keys.log_scale.amax(dim=-1)
    return keys.values * (keys.log_scale - maximum[..., None]).exp()[..., None], maximum


def merge_sums(sums: Sums, more: Sums) -> Sums:
    """Return sums over the keys of both."""
    if sums.maximum is None or more.maximum is None:
        return Sums(sums.matrix + more.matrix, None)
    maximum = torch.maximum(sums.maximum, more.maximum)
    first = sums.matrix * (sums.maximum - maximum).exp()[..., None, None]
    second = more.matrix * (more.maximum - maximum).exp()[..., None, None]
    return Sums(first + second, maximum)


def _with_one_more(sums: Sums, key: Keys) -> Sums:
    """Add one key (B, G, 1, ...) to the sums, in place if there are no gradients."""
    if torch.is_grad_enabled():
        return merge_sums(sums, summed(key))
    matrix, values, maximum = sums.matrix, key.values, sums.maximum
    if maximum is not None and key.log_scale is not None:
        maximum = torch.maximum(maximum, key.log_scale[..., 0])
        assert sums.maximum is not None
        matrix.mul_((sums.maximum - maximum).exp()[..., None, None])
        values = values * (key.log_scale - maximum[..., None]).exp()[..., None]
    return Sums(matrix.addcmul_(key.keys.mT, values), maximum)


def normalized(out: Tensor) -> Tensor:
    """Divide by the last channel: (..., Dh+1) -> (..., Dh); 0 where that is 0."""
    total = out[..., -1:]
    return out[..., :-1] / total.masked_fill(total == 0, 1.0)


def scan(queries: Tensor, keys: Keys, past_sums: Sums | None, chunk: int) -> tuple[Tensor, Sums]:
    """Attend causally: each query sees the keys up to its own and those in `past_sums`.

    Within a chunk the weights are materialized; earlier chunks enter as sums, computed for N chunks
    by a product with an N x N triangle. Scales are relative to a running maximum, so that no later
    key affects an earlier query.

    Args:
        queries: mapped queries (B, H, T, M).
        keys: mapped keys (B, G, T, ...).
        past_sums: sums over earlier keys (B, G, ...), or None.
        chunk: tokens in a chunk.

    Returns:
        The context and its normalizer (B, H, T, Dh+1), and the sums with these keys added.
    """
    steps, groups = queries.shape[2], keys.keys.shape[1]
    if steps == 1:
        total = summed(keys) if past_sums is None else _with_one_more(past_sums, keys)
        return per_group(queries, total.matrix), total
    size = min(chunk, steps)
    q = _in_chunks(queries, size).unflatten(1, (groups, -1))  # (B, G, H/G, N, C, M)
    q = q.transpose(2, 3).flatten(3, 4)  # -> (B, G, N, H/G*C, M)
    scale = keys.log_scale
    if scale is not None:
        scale = _in_chunks(scale[..., None], size, LOWEST)[..., 0]  # (B, G, N, C)
    chunks = Keys(_in_chunks(keys.keys, size), _in_chunks(keys.values, size), scale)
    past, total = _before_each(summed(chunks), past_sums)
    weights = ops.product(q, chunks.keys.mT).unflatten(3, (-1, size))  # (B, G, N, H/G, C, C)
    far = ops.product(q, past.matrix).unflatten(3, (-1, size))  # (B, G, N, H/G, C, Dh+1)
    weights = weights.tril()
    if scale is not None and past.maximum is not None:
        top = torch.maximum(scale.cummax(dim=3).values, past.maximum[..., None])  # (B, G, N, C)
        weights = weights * _decay(scale, top)[:, :, :, None]
        far = far * (past.maximum[..., None] - top).exp()[:, :, :, None, :, None]
    near = ops.product(weights.flatten(3, 4), chunks.values)  # (B, G, N, H/G*C, Dh+1)
    out = (near.unflatten(3, (-1, size)) + far).transpose(2, 3)  # (B, G, H/G, N, C, Dh+1)
    return out.flatten(3, 4).flatten(1, 2)[:, :, :steps], total


def first_chunk(queries: Tensor, keys: Keys) -> Tensor:
    """Compute `scan` of a single chunk without earlier keys: (B, H, T, Dh+1)."""
    weights, scale = per_group(queries, keys.keys.mT).tril(), keys.log_scale
    if scale is not None:
        groups = queries.shape[1] // scale.shape[1]
        decay = _decay(scale, scale.cummax(dim=2).values)  # (B, G, T, T)
        weights = weights * decay.repeat_interleave(groups, dim=1)
    return per_group(weights, keys.values)


def _in_chunks(x: Tensor, size: int, blank: float = 0.0) -> Tensor:
    """Split into chunks, (B, H, T, X) -> (B, H, N, C, X), padding the last one."""
    missing = -x.shape[2] % size
    if missing:
        x = F.pad(x, (0, 0, 0, missing), value=blank)
    return x.unflatten(2, (-1, size))


def _decay(scale: Tensor, top: Tensor) -> Tensor:
    """Return exp(scale_j - top_i) where j <= i, else 0: (..., n), (..., n) -> (..., n, n)."""
    count = scale.shape[-1]
    later = torch.ones(count, count, dtype=torch.bool, device=scale.device).triu(1)
    return (scale[..., None, :] - top[..., None]).masked_fill(later, -torch.inf).exp()


def _before_each(chunk_sums: Sums, past_sums: Sums | None) -> tuple[Sums, Sums]:
    """Return the sums before each chunk (B, G, N, ...) and after the last (B, G, ...)."""
    maximum = chunk_sums.maximum
    if past_sums is None:
        nothing = torch.zeros_like(chunk_sums.matrix[:, :, 0])
        past_sums = Sums(
            nothing, None if maximum is None else torch.full_like(maximum[:, :, 0], LOWEST)
        )
    terms = torch.cat((past_sums.matrix[:, :, None], chunk_sums.matrix), dim=2)
    if maximum is None or past_sums.maximum is None:
        factors = terms.new_ones(terms.shape[2], terms.shape[2]).tril()
        top = None
    else:
        scale = torch.cat((past_sums.maximum[:, :, None], maximum), dim=2)
        top = scale.cummax(dim=2).values
        factors = _decay(scale, top)
    running = ops.product(factors, terms.flatten(3)).unflatten(3, terms.shape[3:])
    past = Sums(running[:, :, :-1], None if top is None else top[:, :, :-1])
    return past, Sums(running[:, :, -1], None if top is None else top[:, :, -1])


class RecurrentCache(FixableCache):
    """Sums over the past tokens of each row; their size is constant."""

    def __init__(self, beams: int = 1) -> None:
        super().__init__(beams)
        self.length = 0
        # over all tokens so far, (B*K, G, ...); None at first
        self.sums: Sums | None = None
        self._keys: Keys | None = None

    def remember(self, new: Keys) -> Keys:
        """Store the keys themselves, to show weights, and return all so far.

        Must be called before `advance` with their sums, from the first token on.
        """
        assert self._keys is not None or not self.length, "capture must begin at the first token"
        if self._keys is not None:
            keys, values, scale = self._keys
            if scale is not None and new.log_scale is not None:
                scale = torch.cat((scale, new.log_scale), dim=2)
            tensors = (torch.cat((keys, new.keys), dim=2), torch.cat((values, new.values), dim=2))
            new = Keys(*tensors, scale)
        self._keys = new
        return new

    def advance(self, sums: Sums, steps: int) -> None:
        """Advance by T = `steps` tokens, to `sums` over all tokens so far."""
        if self.token_index is not None and self.sums is not None:
            for stored, new in zip(self.tensors(), _tensors(sums)):
                stored.copy_(new)
            return
        self.sums = sums
        self.length += steps
        if self._keys is not None and self._keys.keys.shape[2] != self.length:
            self._keys = None

    def select(self, rows: Tensor) -> None:
        if self.sums is not None:
            matrix, maximum = self.sums
            self.sums = Sums(matrix[rows], None if maximum is None else maximum[rows])
        if self._keys is not None:
            keys, values, scale = self._keys
            self._keys = Keys(keys[rows], values[rows], None if scale is None else scale[rows])

    def tensors(self) -> list[Tensor]:
        return _tensors(self.sums)

    def reset(self) -> None:
        super().reset()
        for maximum in self.tensors()[1:]:
            maximum.fill_(LOWEST)


def _tensors(sums: Sums | None) -> list[Tensor]:
    return [x for x in sums or () if x is not None]
