"""Multi-head, grouped-query and multi-query attention, and conversion between them."""

from collections import Counter
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.base import Attention, AttentionOutput
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.base import HeadShape, KernelFactory
from seqattn.attention.masks import Mask
from seqattn.checking import BadValue, Count, Dropout, Width
from seqattn.errors import UserError
from seqattn.ops.layers import Linear, can_join, joint_linear
from seqattn.positions.base import Position


class KernelAttention(Attention):
    """Base of attentions whose heads are computed by a kernel.

    Args and errors as for `MultiHeadAttention`.
    """

    head_dim: int

    def __init__(
        self,
        query_dim: int,
        num_heads: int,
        num_kv_heads: int,
        kernel: KernelFactory,
        dropout: float,
        kept_heads: Sequence[int] | None = None,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        if head_dim is None and query_dim % num_heads:
            raise BadValue("num_heads", f"must divide model.dim ({query_dim}), got {num_heads}")
        if num_heads % num_kv_heads:
            reason = f"must divide num_heads ({num_heads}), got {num_kv_heads}"
            raise BadValue("num_kv_heads", reason, "num_heads")
        self.unpruned_heads, self.head_dim = num_heads, head_dim or query_dim // num_heads
        if kept_heads is not None:
            num_heads, num_kv_heads = _counts(kept_heads, num_heads, num_heads // num_kv_heads)
            self.kept_heads = tuple(kept_heads)
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.kernel = kernel(HeadShape(num_heads, num_kv_heads, self.head_dim, dropout))
        if kept_heads is not None and self.kernel.unlike_heads:
            raise UserError(f"cannot prune heads of {self.name}: {self.kernel.unlike_heads}")
        self.abilities = self.kernel.abilities
        self.exceptions = self.kernel.exceptions
        self.max_length = self.kernel.max_length
        if dropout and not self.abilities.dropout:
            raise UserError(f"{self.name} has no weights to drop; set attention.dropout=0")

    @property
    def name(self) -> str:
        return type(self.kernel).__name__

    @property
    def position_heads(self) -> int:
        return self.unpruned_heads

    def prepared(self, source: KeysValues, mask: Mask, position: Position) -> KeysValues:
        return self.kernel.prepared(super().prepared(source, mask, position), mask, position)

    def make_cache(self, beams: int) -> Cache:
        return self.kernel.make_cache(beams)


def _counts(heads: Sequence[int], num_heads: int, group: int) -> tuple[int, int]:
    """Return the numbers of retained query and key heads, of `num_heads` in groups of `group`."""
    if not heads or list(heads) != sorted({head for head in heads if 0 <= head < num_heads}):
        last = num_heads - 1
        raise BadValue("kept_heads", f"must be ascending numbers from 0 to {last}, got {heads}")
    sizes = set((group_sizes := Counter(head // group for head in heads)).values())
    if len(sizes) > 1:
        reason = f"must keep the same number of query heads per key head, got {list(heads)}"
        raise BadValue("kept_heads", reason)
    return len(heads), len(group_sizes)


class MultiHeadAttention(KernelAttention):
    """Attention over several heads: projections around a kernel.

    `num_kv_heads` equal to `num_heads` is multi-head attention (Vaswani et al. 2017, arXiv
    1706.03762), 1 is multi-query (Shazeer 2019, arXiv 1911.02150), and anything in between is
    grouped-query (Ainslie et al. 2023, arXiv 2305.13245). Time and memory are those of the kernel
    and the projections; the cache holds 2 * G * Dh numbers per token.

    Args:
        query_dim: width of the queries' sequence and of the output.
        memory_dim: width of the sequence of keys and values.
        num_heads: query heads H; divides query_dim if `head_dim` is None.
        num_kv_heads: key and value heads G; divides num_heads.
        kernel: builds the kernel from the shape of the heads.
        dropout: share of attention weights dropped in training.
        bias: add a bias to the four projections.
        kept_heads: heads retained by pruning, in ascending order from 0; None for all. A key head
            stays if one of its query heads does, and all that stay must keep the same number of
            query heads; head widths and the positions of a head do not change.
        head_dim: width Dh of a head; None for query_dim / num_heads.
        qk_norm: normalize the queries and keys of each head (Henry et al. 2020, arXiv 2010.04245),
            by an RMS norm with a learned scale per channel, before positions rotate them.

    With a kernel of `abilities.shared` there is no query projection: the keys are the queries.

    Raises:
        UserError: the head counts are not divisible, or the kernel does not support them.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        num_heads: Count,
        num_kv_heads: Count,
        kernel: KernelFactory,
        dropout: Dropout = 0.0,
        bias: bool = True,
        kept_heads: list[int] | None = None,
        head_dim: Width | None = None,
        qk_norm: bool = False,
    ) -> None:
        super().__init__(query_dim, num_heads, num_kv_heads, kernel, dropout, kept_heads, head_dim)
        if self.abilities.shared and num_kv_heads != num_heads:
            raise BadValue(
                "num_kv_heads",
                f"must equal num_heads ({num_heads}), as {self.name} shares queries and keys, got "
                f"{num_kv_heads}",
                "num_heads",
            )
        inner, width = self.head_dim * self.num_heads, self.head_dim * self.num_kv_heads
        self.query = None if self.abilities.shared else Linear(query_dim, inner, bias=bias)
        self.key = Linear(memory_dim, width, bias=bias)
        self.value = Linear(memory_dim, width, bias=bias)
        self.output = Linear(inner, query_dim, bias=bias)
        for projection in (self.query, self.key, self.value, self.output):
            if projection is not None:
                nn.init.xavier_uniform_(projection.weight)
                if bias:
                    nn.init.zeros_(projection.bias)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(self.head_dim, eps=1e-6) if qk_norm and projection is not None else None
            for projection in (self.query, self.key)
        )

    def project(self, memory: Tensor) -> KeysValues:
        return self._keys_values(self.key(memory), self.value(memory))

    def _keys_values(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Divide projected keys and values (B, S, G*Dh) into heads."""
        return KeysValues(
            self._heads(keys, self.num_kv_heads, self.key_norm),
            self._heads(values, self.num_kv_heads),
        )

    def mix(self, x: Tensor, mask: Mask, position: Position, cache: Cache | None = None) -> Tensor:
        layers = [layer for layer in (self.query, self.key, self.value) if layer is not None]
        if not self.training or not _is_usual(self) or not can_join(x, layers):
            return super().mix(x, mask, position, cache)
        *query, keys, values = joint_linear(x, layers)
        keys_values = self._keys_values(keys, values)
        queries = query[0] if query else keys
        output: Tensor = self(x, keys_values, mask, position, cache, projected=queries)[0]
        return output

    @staticmethod
    def _heads(x: Tensor, heads: int, norm: nn.RMSNorm | None = None) -> Tensor:
        x = x.unflatten(2, (heads, -1))  # (B, T, H*Dh) -> (B, T, H, Dh)
        if norm is not None:
            weight = norm.weight.to(x.dtype)  # which autocast leaves in float32
            x = F.rms_norm(x, norm.normalized_shape, weight, norm.eps).to(x.dtype)
        return x.transpose(1, 2)  # -> (B, H, T, Dh)

    def forward(
        self,
        query: Tensor,
        keys_values: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
        projected: Tensor | None = None,
    ) -> AttentionOutput:
        """Attend as in `Attention.forward`.

        Args:
            projected: projected queries (B*K, T, H*Dh) if already computed, see `mix`.
        """
        norm = self.query_norm or self.key_norm
        if projected is None:
            projected = (self.query or self.key)(query)
        q = self._heads(projected, self.num_heads, norm)
        context, weights = self.kernel(q, keys_values, mask, position, cache, need_weights)
        factors = self.head_factors(context)
        if factors is not None:
            context = context * factors[..., None, None]
        merged = context.transpose(1, 2).flatten(2)  # (B, H, T, Dh) -> (B, T, H*Dh)
        mean = None if weights is None else self._mean(weights)
        return AttentionOutput(self.output(merged), mean)

    def _mean(self, weights: Tensor) -> Tensor:
        """Return the mean of weights (B, H, T, S) over heads, weighted by `gates`."""
        if self.gates is None:
            return weights.mean(dim=1)
        shares = self.gates.clamp(min=0)
        shares = shares / shares.sum().clamp(min=1e-30)  # zero weights if all gates are 0
        return (weights * shares.to(weights.dtype)[:, None, None]).sum(dim=1)


def _is_usual(attention: MultiHeadAttention) -> bool:
    """Return True if no subclass has other projections, which a joint product would leave out."""
    kind = type(attention)
    same_projections = kind.project is MultiHeadAttention.project
    return same_projections and kind.forward is MultiHeadAttention.forward


def project_all(attentions: Sequence[Attention], memory: Tensor) -> list[KeysValues]:
    """Return the keys and values of one memory (B, S, memory_dim) for several attentions."""
    heads = [one for one in attentions if isinstance(one, MultiHeadAttention) and _is_usual(one)]
    layers = [layer for one in heads for layer in (one.key, one.value)]
    if len(heads) < len(attentions) or not heads or not can_join(memory, layers):
        return [attention.project(memory) for attention in attentions]
    parts = iter(joint_linear(memory, layers))
    return [one._keys_values(next(parts), next(parts)) for one in heads]


def pool_key_heads(source: nn.Module, target: nn.Module) -> None:
    """Copy the parameters of `source` into `target`, which may have fewer key and value heads.

    Each key and value head of `target` is the mean of those it replaces (Ainslie et al. 2023,
    arXiv 2305.13245, section 2.1). With equal head counts this is a plain copy.

    Args:
        source: any module that contains multi-head attentions.
        target: the same module except for `num_kv_heads`, which divides that of `source`.

    Raises:
        UserError: parameters other than key and value projections differ in shape.
    """
    state = source.state_dict()
    for name, attention in target.named_modules():
        if isinstance(attention, MultiHeadAttention):
            parts = (
                f"{name}.{of}.{part}" for of in ("key", "value") for part in ("weight", "bias")
            )
            for full in (part.removeprefix(".") for part in parts):
                if full in state:
                    rows = (attention.num_kv_heads, -1, attention.head_dim)
                    heads = state[full].unflatten(0, rows)  # (G*Dh, ...) -> (G', G/G', Dh, ...)
                    state[full] = heads.mean(dim=1).flatten(0, 1)
    new = target.state_dict()
    wrong = [name for name in new if name not in state or state[name].shape != new[name].shape]
    if wrong:
        raise UserError(f"cannot pool {wrong[0]}: its shape depends on the number of key heads")
    target.load_state_dict(state)
