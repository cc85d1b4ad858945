"""Score functions of a decoder's state and a source annotation."""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from seqattn import ops
from seqattn.errors import UserError
from seqattn.ops.layers import Linear
from seqattn.ops.memory import block_numbers

_BLOCK_NUMBERS = 1 << 20  # inputs of the tanh at once on a CPU: 4 MiB in float32, to fit the caches


class Score(nn.Module, ABC):
    """Base of score functions, for every query and every annotation of its sentence."""

    @abstractmethod
    def project(self, memory: Tensor) -> Tensor:
        """Return keys (B, S, A) of annotations (B, S, M): the part independent of the query."""

    @abstractmethod
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, T, S) of queries (B, T, Q) and keys (B, S, A)."""


class ProductScore(Score):
    """h_i^T s (Luong et al. 2015, arXiv 1508.04025, eq. 8), divided by sqrt(D) if `scaled`.

    If `general`, h_i^T W s, with W applied to the annotations, once per sentence.

    Args:
        query_dim: width D of a state.
        memory_dim: width of an annotation; equal to `query_dim` unless `general`.
        general: use a matrix W.
        scaled: divide by sqrt(D), as Vaswani et al. 2017 (arXiv 1706.03762) do.

    Raises:
        UserError: unequal widths without W.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, general: bool = False, scaled: bool = False
    ) -> None:
        super().__init__()
        if query_dim != memory_dim and not general:
            raise UserError(
                f"attention.score={'scaled' if scaled else 'dot'} needs model.decoder_dim equal to "
                f"model.encoder_dim, got {query_dim} and {memory_dim}; make them equal, or set "
                "attention.score=general"
            )
        self.factor = 1 / math.sqrt(query_dim) if scaled else None
        self.key = Linear(memory_dim, query_dim, bias=False) if general else None
        if self.key is not None:
            nn.init.xavier_uniform_(self.key.weight)

    def project(self, memory: Tensor) -> Tensor:
        return memory if self.key is None else self.key(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scaled = query if self.factor is None else query * self.factor
        return scaled @ keys.transpose(1, 2)


class AdditiveScore(Score):
    """v^T tanh(W_h h_i + W_s s) (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2).

    Luong's concat, v^T tanh(W [h_i; s]), is the same with W cut in two.

    Args:
        query_dim: width of a state.
        memory_dim: width of an annotation.
        dim: width A inside the tanh; None for `query_dim`.
    """

    def __init__(self, query_dim: int, memory_dim: int, dim: int | None = None) -> None:
        super().__init__()
        dim = dim or query_dim
        self.key = Linear(memory_dim, dim, bias=False)
        self.query = Linear(query_dim, dim, bias=False)
        self.v = Linear(dim, 1, bias=False)
        for layer in (self.key, self.query, self.v):
            nn.init.xavier_uniform_(layer.weight)

    def project(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        queries = self.query(query)
        rows = max(1, block_numbers(keys, _BLOCK_NUMBERS) // max(1, keys.numel()))
        parts = [self._block(part, keys) for part in queries.split(rows, dim=1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _block(self, queries: Tensor, keys: Tensor) -> Tensor:
        inside = ops.tanh_(queries[:, :, None] + keys[:, None])  # (B, T, S, A)
        scores: Tensor = self.v(inside)[..., 0]
        return scores


ScoreName = Literal["dot", "general", "concat", "scaled"]


def make_score(name: ScoreName, query_dim: int, memory_dim: int) -> Score:
    """Build one of Luong's scores: dot, general, concat or scaled.

    Raises:
        UserError: unequal widths with dot or scaled.
    """
    if name == "concat":
        return AdditiveScore(query_dim, memory_dim)
    return ProductScore(query_dim, memory_dim, name == "general", name == "scaled")
