"""Disentangled attention: content and relative position score apart, and are added."""

import torch
from torch import Tensor, nn

from seqattn.checking import Width, checked
from seqattn.positions.base import LayeredPosition, Position, Stack
from seqattn.positions.relative import Reach, reached, read, table_rows


@checked
class DisentangledPosition(LayeredPosition):
    """The scalar form: the content's score + alpha_h * R_{i-j}, R learned over clipped distances.

    What tutorials call disentangled attention, after He et al. 2021 (arXiv 2006.03654). Each
    layer has its own R and alpha. A constant per head would cancel in the softmax; there is none.

    Args:
        stack: what it serves.
        max_distance: distances are clipped to it, in tokens.
    """

    def __init__(self, stack: Stack, max_distance: Reach = 64) -> None:
        super().__init__(stack, lambda: DisentangledLayer(stack, max_distance))


class DisentangledLayer(Position):
    """One layer's part of `DisentangledPosition`. Args: as there."""

    hooks = frozenset({"score_term"})

    def __init__(self, stack: Stack, max_distance: int) -> None:
        super().__init__(stack)
        self.max_distance = max_distance
        self.alpha = nn.Parameter(torch.ones(stack.num_heads))
        self.table = nn.Parameter(torch.empty(2 * max_distance + 1).normal_(std=0.02))

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        values = self.alpha[:, None] * self.table  # (H, R)
        rows = table_rows(q_positions, k_positions, -self.max_distance, len(self.table))
        return read(values[None, :, None], rows, q.dtype)


@checked
class DeBERTaPosition(LayeredPosition):
    """DeBERTa's disentangled attention (He et al. 2021, arXiv 2006.03654, eq. 4).

    Scores are (Qc_i Kc_j + Qc_i Kr_{delta(i,j)} + Kc_j Qr_{delta(j,i)}) / sqrt(3 Dh), where
    delta(i, j) is i - j clipped to [-k, k) and counted from -k. The 2k vectors of distances are
    shared by all layers; each layer has its own projections of them to Kr and Qr. Time
    (T + S)*2k*D and T*S*H more than content alone, and that of projecting 2k vectors twice, which
    a decoder pays at every step; outside compiled graphs no more of them are projected than T
    queries and S keys reach. Kr has no bias, which would cancel in the softmax.

    Args:
        stack: what it serves.
        max_relative_positions: k, in tokens.
        released: read Qr at delta(i, j), as the authors' code and `transformers` do, where the
            paper has delta(j, i).
    """

    def __init__(
        self, stack: Stack, max_relative_positions: Width = 128, released: bool = False
    ) -> None:
        super().__init__(stack, lambda: DeBERTaLayer(stack, self))
        self.reach = max_relative_positions
        self.released = released
        self.table = nn.Parameter(
            torch.empty(2 * self.reach, stack.dim).normal_(std=stack.dim**-0.5)
        )


class DeBERTaLayer(Position):
    """One layer's projections of the distances' vectors, which `shared` holds."""

    hooks = frozenset({"score_term"})

    def __init__(self, stack: Stack, shared: DeBERTaPosition) -> None:
        super().__init__(stack)
        self._shared = (shared,)  # a tuple, so that its parameters are not counted as the layer's
        self.key = nn.Linear(stack.dim, stack.num_heads * stack.head_dim, bias=False)
        self.query = nn.Linear(stack.dim, stack.num_heads * stack.head_dim)
        for projection in (self.key, self.query):
            nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(self.query.bias)

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        (shared,) = self._shared
        reach = shared.reach
        forth = table_rows(q_positions, k_positions, -reach, 2 * reach)  # (T, S)
        if shared.released:
            back = forth.transpose(-1, -2)  # (S, T)
        else:
            back = table_rows(k_positions, q_positions, -reach, 2 * reach)
        scale = self.score_scale(q.shape[-1])
        forth, part = reached(forth, 2 * reach)
        key = self._heads(self.key(shared.table[part])) * scale  # (H, R, Dh)
        to_position = read(torch.einsum("bhtd,hrd->bhtr", q, key), forth, q.dtype)
        back, part = reached(back, 2 * reach)
        query = self._heads(self.query(shared.table[part])) * scale
        query = query.unflatten(0, (k.shape[1], -1))  # (H, R, Dh) -> (G, H/G, R, Dh)
        scores = torch.einsum("bgsd,gnrd->bgnsr", k, query).flatten(1, 2)  # (B, H, S, R)
        to_content = read(scores, back, q.dtype)  # (B, H, S, T)
        return to_position + to_content.transpose(2, 3)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.stack.num_heads, -1)).transpose(0, 1)  # (R, D) -> (H, R, Dh)

    def score_scale(self, head_dim: int) -> float:
        return float((3 * head_dim) ** -0.5)
