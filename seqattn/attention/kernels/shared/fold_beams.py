"""Folding of a sentence's beams into query positions, which share its keys."""

import torch
from torch import Tensor

from seqattn.attention.beam_table import BeamSlots
from seqattn.attention.masks import Mask


def fold_beams(x: Tensor, beams: int) -> Tensor:
    """Fold beams into query positions: (B*K, H, T, Dh) -> (B, H, K*T, Dh)."""
    x = x.unflatten(0, (-1, beams))  # (B, K, H, T, Dh)
    return x.transpose(1, 2).flatten(2, 3)  # (B, H, K, T, Dh) -> (B, H, K*T, Dh)


def unfold_beams(x: Tensor, beams: int) -> Tensor:
    """Undo `fold_beams`: (B, H, K*T, Dh) -> (B*K, H, T, Dh)."""
    x = x.unflatten(2, (beams, -1))  # (B, H, K, T, Dh)
    return x.transpose(1, 2).flatten(0, 1)  # (B, K, H, T, Dh) -> (B*K, H, T, Dh)


def fold_mask(mask: Mask, beams: int, slots: BeamSlots) -> Mask:
    """Return the self-attention mask of folded queries: B rows of K*T queries over N slots.

    The last result for a mask is kept, as all layers of a step share their slots.

    Args:
        mask: of B*K rows of T queries; its `real` has B rows over L tokens.
        beams: K.
        slots: slots of the cache.
    """
    last: tuple[BeamSlots, Mask] | None = vars(mask).get("last_folded")
    if last is not None and last[0] is slots:
        return last[1]
    assert mask.extra is None, "custom masks are not supported in decoding with beams"
    queries, keys, steps = mask.query_positions, mask.key_positions, mask.queries
    (ancestry, tokens), length = slots, mask.keys
    queries = queries.repeat(beams) if queries.dim() == 1 else queries.reshape(-1, beams * steps)
    keys = keys[::beams] if keys.dim() == 2 else keys  # equal for the beams of a sentence
    visible = ancestry[:, :, None, :]  # (B, K, 1, N)
    if steps > 1:
        newest = torch.arange(length - steps, length, device=visible.device)
        earlier = tokens[..., None, :] <= newest[:, None]  # ([B,] T, N)
        visible = visible & (earlier if tokens.dim() == 1 else earlier[:, None])
    real = None if mask.real is None else _of_slots(mask.real, tokens)
    keys = _of_slots(keys, tokens)
    queries = queries.expand(*keys.shape[:-1], -1)
    extra = visible.flatten(1, 2)[:, None]
    folded = Mask(queries, keys, real, extra=extra, all_see=mask.all_see)
    vars(mask)["last_folded"] = slots, folded
    return folded


def _of_slots(x: Tensor, tokens: Tensor) -> Tensor:
    """Gather x ([B,] L) of tokens for the slots ([B,] N) that hold them."""
    if tokens.dim() == 1 or x.dim() == 1:
        return x[..., tokens]
    return x.gather(1, tokens)
