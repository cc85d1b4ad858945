"""The largest numbers of several rows together."""

import torch
from torch import Tensor


def plain_largest(x: Tensor, bonus: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """What `largest` computes, by looking at every number."""
    return (x + bonus[..., None]).flatten(1).topk(count, dim=1)


def largest(x: Tensor, bonus: Tensor, count: int, columns: int = 128) -> tuple[Tensor, Tensor]:
    """The `count` largest of all x + bonus in each row, by looking into the best columns alone.

    Every line of V numbers is folded into a table of so many columns. The largest numbers lie in
    the columns with the largest maxima, so one quick pass of maxima replaces a sort of everything.

    Args:
        x: (B, K, V).
        bonus: (B, K), added to each line.
        count: at most K * V.
        columns: of a table.

    Returns:
        Values, and places in the flattened K * V, each (B, count), largest first.
    """
    lines, size = x.shape[1:]
    whole = size // columns * columns
    if lines * columns <= count or whole < 8 * columns:
        return plain_largest(x, bonus, count)
    table = x[..., :whole].unflatten(-1, (-1, columns))  # (B, K, V) -> (B, K, V/columns, columns)
    maxima = (table.amax(dim=2) + bonus[..., None]).flatten(1)  # (B, K*columns)
    column = maxima.topk(count, dim=1).indices
    start = column // columns * size + column % columns
    down = torch.arange(0, whole, columns, device=x.device)
    rest = torch.arange(whole, size, device=x.device)
    ends = torch.arange(0, lines * size, size, device=x.device)[:, None] + rest
    inside = (start[..., None] + down).flatten(1)
    places = torch.cat((inside, ends.flatten().expand(len(x), -1)), dim=1)
    values = x.flatten(1).gather(1, places) + bonus.gather(1, places // size)
    best, order = values.topk(count, dim=1)
    return best, places.gather(1, order)
