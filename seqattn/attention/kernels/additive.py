"""Additive attention over whole sequences."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from seqattn import ops
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from seqattn.ops.memory import block_numbers
from seqattn.positions.base import Position

_BLOCK_NUMBERS = 1 << 20  # inputs of the tanh at once on a CPU: 4 MiB in float32, to fit the caches


class AdditiveKernel(SoftmaxKernel):
    """softmax(v^T tanh(q + k)) V, with learned v per head and Q, K projected by W and U.

    The score of Bahdanau et al. 2014 (arXiv 1409.0473, appendix A.1.2) for all pairs of a query and
    a key at once. No product, so positions cannot rotate its inputs. Time T*S*D, a tanh for each
    multiplication, memory T*S per head for the weights, and T*S*D in training, of one layer at a
    time with `model.checkpoint_activations`; cache 2*G*Dh numbers per token. Bidirectional, causal,
    cross and incremental.
    """

    abilities = replace(SoftmaxKernel.abilities, hooks=SoftmaxKernel.abilities.hooks - {"rotate"})
    not_matrices = ("v",)  # a vector for each head

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.v = nn.Parameter(torch.empty(shape.num_heads, shape.head_dim))
        nn.init.normal_(self.v, std=shape.head_dim**-0.5)

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        """Return the scores (B, H, T, S), in blocks of queries."""
        keys = ops.float32_on_cpu(keys).repeat_interleave(q.shape[1] // keys.shape[1], dim=1)
        rows = q.shape[2]
        if not torch.compiler.is_compiling():
            rows = max(1, block_numbers(keys, _BLOCK_NUMBERS) // max(1, keys.numel()))
        v = self.v.to(keys.dtype)[:, :, None].expand(len(q), -1, -1, -1)  # (B, H, Dh, 1)
        parts = [_scores(part, keys, v) for part in ops.float32_on_cpu(q).split(rows, dim=2)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _scores(q: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Return v^T tanh(q + k) for all pairs: (B, H, T, S). Args: v: (B, H, Dh, 1)."""
    inside = ops.tanh_(q[:, :, :, None] + keys[:, :, None])  # (B, H, T, S, Dh)
    return ops.exact_product(inside.flatten(2, 3), v).view(inside.shape[:-1])
