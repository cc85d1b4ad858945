"""Top-k over several rows together."""

import torch
from torch import Tensor


def plain_largest(x: Tensor, bonus: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute `largest` by a full top-k, as the reference."""
    return (x + bonus[..., None]).flatten(1).topk(count, dim=1)


def largest(x: Tensor, bonus: Tensor, count: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of x + bonus per batch item, searching only the best blocks.

    The largest numbers are in the blocks with the largest maxima, so one fast pass of maxima
    replaces a sort of all numbers.

    Args:
        x: (B, K, V).
        bonus: (B, K), added to each row.
        count: at most K * V.
        size: adjacent numbers in a block; the rest of a row is searched completely.

    Returns:
        Values, and indices into the flattened K * V, each (B, count), largest first.
    """
    lines, length = x.shape[1:]
    blocks = length // size
    if lines * blocks <= count or blocks < 8:
        return plain_largest(x, bonus, count)
    covered, bonus = blocks * size, bonus[..., None]
    table = x[..., :covered].unflatten(-1, (blocks, size))  # (B, K, V) -> (B, K, V/size, size)
    maxima = (table.amax(dim=-1) + bonus).flatten(1)
    block = maxima.topk(count, dim=1).indices
    line = block // blocks
    start = line * length + block % blocks * size
    inside = torch.arange(size, device=x.device)
    indices = (start[..., None] + inside).flatten(1)  # (B, count) -> (B, count*size)
    values = x.flatten(1).gather(1, indices).unflatten(1, (count, size))
    values = (values + bonus.gather(1, line[..., None])).flatten(1)
    if covered < length:
        tail = torch.arange(covered, length, device=x.device)
        ends = torch.arange(0, lines * length, length, device=x.device)[:, None] + tail
        indices = torch.cat((indices, ends.flatten().expand(len(x), -1)), dim=1)
        values = torch.cat((values, (x[..., covered:] + bonus).flatten(1)), dim=1)
    best, order = values.topk(count, dim=1)
    return best, indices.gather(1, order)
