"""Grouped heads: several query heads share one key and value head."""

from collections.abc import Callable

from torch import Tensor

from seqattn import ops


def per_group(
    x: Tensor, shared: Tensor, multiply: Callable[[Tensor, Tensor], Tensor] = ops.product
) -> Tensor:
    """Return x @ shared, with heads i*H/G to (i+1)*H/G - 1 of x sharing head i (arXiv 2305.13245).

    Nothing is repeated: the queries of a group are rows of one product.

    Args:
        x: (B, H, T, M).
        shared: (B, G, M, N).
        multiply: batched matrix product.

    Returns:
        (B, H, T, N).
    """
    heads, groups = x.shape[1], shared.shape[1]
    if heads == groups:
        return multiply(x, shared)
    rows = x.unflatten(1, (groups, -1)).flatten(2, 3)  # (B, H, T, M) -> (B, G, H/G*T, M)
    products = multiply(rows, shared).unflatten(2, (heads // groups, -1))
    return products.flatten(1, 2)  # (B, G, H/G, T, N) -> (B, H, T, N)
