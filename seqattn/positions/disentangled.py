"""Disentangled attention: separate scores for content and relative position, added."""

import copy

import torch
from torch import Tensor, nn

from seqattn import ops
from seqattn.checking import Width
from seqattn.ops.layers import Linear
from seqattn.positions.base import LayeredPosition, Position, Stack
from seqattn.positions.relative import Reach, reached, read, table_rows


class DisentangledPosition(LayeredPosition):
    """Scalar form: content score + alpha_h * R_{i-j}, with R learned over clipped distances.

    The disentangled attention of tutorials, after He et al. 2021 (arXiv 2006.03654). Each layer
    has its own R and alpha. There is no constant per head, as it would cancel in the softmax.

    Args:
        stack: the stack of layers.
        max_distance: clipping limit of distances, in tokens.
    """

    def __init__(self, stack: Stack, max_distance: Reach = 64) -> None:
        super().__init__(stack, lambda heads: DisentangledLayer(stack, max_distance, heads))


class DisentangledLayer(Position):
    """One layer's part of `DisentangledPosition`, with the same arguments."""

    hooks = frozenset({"score_term"})

    def __init__(self, stack: Stack, max_distance: int, heads: int) -> None:
        super().__init__(stack)
        self.max_distance = max_distance
        self.alpha = nn.Parameter(torch.ones(heads))
        self.table = nn.Parameter(torch.empty(2 * max_distance + 1).normal_(std=0.02))

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        values = self.alpha[:, None] * self.table  # (H, R)
        rows = table_rows(q_positions, k_positions, -self.max_distance, len(self.table))
        return read(values[None, :, None], rows, q.dtype)


class DeBERTaPosition(LayeredPosition):
    """DeBERTa's disentangled attention (He et al. 2021, arXiv 2006.03654, eq. 4).

    Scores are (Qc_i Kc_j + Qc_i Kr_{delta(i,j)} + Kc_j Qr_{delta(j,i)}) / sqrt(3 Dh), where
    delta(i, j) is i - j clipped to [-k, k) and counted from -k. The 2k vectors of distances are
    shared by all layers; each layer has its own projections of them to Kr and Qr. Takes time
    (T + S)*2k*D + T*S*H beyond content alone, and two projections of 2k vectors, which decoding
    computes once per batch; outside compiled graphs a full pass projects only those that T queries
    and S keys reach. Kr has no bias, as it would cancel in the softmax.

    Args:
        stack: the stack of layers.
        max_relative_positions: k, in tokens.
        released: read Qr at delta(i, j), as the authors' code and `transformers` do, where the
            paper has delta(j, i).
    """

    def __init__(
        self, stack: Stack, max_relative_positions: Width = 128, released: bool = False
    ) -> None:
        super().__init__(stack, lambda heads: DeBERTaLayer(stack, self, heads))
        self.reach = max_relative_positions
        self.released = released
        self.table = nn.Parameter(
            torch.empty(2 * self.reach, stack.dim).normal_(std=stack.dim**-0.5)
        )


class DeBERTaLayer(Position):
    """One layer's projections of the distance vectors, which `shared` holds."""

    hooks = frozenset({"score_term"})
    tables: tuple[Tensor, Tensor] | None = None  # all of Kr and Qr, after `prepared`

    def __init__(self, stack: Stack, shared: DeBERTaPosition, heads: int) -> None:
        super().__init__(stack)
        # in a tuple, so that its parameters are not registered with the layer
        self._shared = (shared,)
        self.key = Linear(stack.dim, heads * stack.head_dim, bias=False)
        self.query = Linear(stack.dim, heads * stack.head_dim)
        for projection in (self.key, self.query):
            nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(self.query.bias)

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        if self.tables is not None and k_positions.dim() == 1 and _together(q_positions):
            return self._of_one_position(q, k, *self._rows(q_positions[:1], k_positions))
        forth, back = self._rows(q_positions, k_positions)
        size = 2 * self._shared[0].reach
        forth, part = reached(forth, size)
        key = self._projected(0, part)  # (H, R, Dh)
        to_position = read(_by_head(q, key), forth, q.dtype)
        back, part = reached(back, size)
        query = self._projected(1, part).unflatten(0, (k.shape[1], -1))  # -> (G, H/G, R, Dh)
        share = query.shape[1]
        scores = _by_head(k, query.flatten(1, 2)).unflatten(3, (share, -1))  # (B, G, S, H/G, R)
        scores = scores.transpose(2, 3).flatten(1, 2)  # (B, H, S, R)
        to_content = read(scores, back, q.dtype)  # (B, H, S, T)
        return to_position + to_content.transpose(2, 3)

    def _rows(self, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row indices of Kr (T, S) and of Qr (S, T)."""
        (shared,) = self._shared
        ends = -shared.reach, 2 * shared.reach
        forth = table_rows(q_positions, k_positions, *ends)
        if shared.released:
            return forth, forth.transpose(-1, -2)
        return forth, table_rows(k_positions, q_positions, *ends)

    def _of_one_position(self, q: Tensor, k: Tensor, forth: Tensor, back: Tensor) -> Tensor:
        """Return the score term for queries at one position, with one row of Kr (1, S) and one of
        Qr (S, 1) for each key."""
        key, query = self._projected(0, forth[0]), self._projected(1, back[:, 0])  # (H, S, Dh)
        query = query.unflatten(0, (k.shape[1], -1))  # (G, H/G, S, Dh)
        to_content = (k[:, :, None] * query).sum(dim=-1).flatten(1, 2)  # (B, H, S)
        to_position = torch.einsum("bhtd,hsd->bhts", q, key)
        return (to_position + to_content[:, :, None]).to(q.dtype)

    def prepared(self) -> Position:
        copied = copy.copy(self)
        # also for attentions that compute in full precision under autocast
        with torch.autocast(self.key.weight.device.type, enabled=False):
            copied.tables = (self._projected(0, slice(None)), self._projected(1, slice(None)))
        return copied

    def _projected(self, number: int, part: slice | Tensor) -> Tensor:
        """Return Kr (0) or Qr (1) for a range of distances, scaled: (H, R, Dh)."""
        if self.tables is not None:
            return self.tables[number][:, part]
        vectors = (self.key, self.query)[number](self._shared[0].table[part])
        heads = vectors.unflatten(1, (-1, self.stack.head_dim)).transpose(0, 1)
        return heads * self.score_scale(self.stack.head_dim)  # (R, H*Dh) -> (H, R, Dh)

    def score_scale(self, head_dim: int) -> float:
        return float((3 * head_dim) ** -0.5)


def _by_head(x: Tensor, rows: Tensor) -> Tensor:
    """Return products of queries or keys (B, H, T, Dh) with the rows (H, R, Dh) of each head:
    (B, H, T, R)."""
    heads = x.transpose(0, 1)  # (H, B, T, Dh)
    products = ops.product(heads.flatten(1, 2), rows.mT).unflatten(1, heads.shape[1:3])
    return products.transpose(0, 1)


def _together(positions: Tensor) -> bool:
    """Return True if all positions are equal; always False where checking would wait for a GPU."""
    if positions.shape == (1,):
        return True
    if positions.dim() > 1 or not ops.at_hand(positions):
        return False
    return bool((positions == positions[0]).all())
