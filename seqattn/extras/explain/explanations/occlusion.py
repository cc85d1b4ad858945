"""Occlusion: drop in a target token's log-probability with one input token made unknown."""

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Contrasting, Explanation
from seqattn.extras.explain.explanations.predictions import (
    ROWS,
    decoder_input,
    log_probabilities,
    without_padding,
)
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import PAD, UNK


class Occlusion(Contrasting):
    """Log p(target token) less its value with one input token made unknown, in nats.

    Words are erased one at a time (Li et al. 2016; for pixels, Zeiler and Fergus 2014, arXiv
    1311.2901). The unknown word takes the token's place, so that no other token moves, and a
    copying head cannot copy it; a zero vector would not be small to a model that begins with a
    norm. `rest` is the log-probability less all drops: redundant tokens count for nothing, and
    tokens needed together count twice. Of two tokens, the difference of their log-probabilities
    takes the place of the log-probability.

    Takes one pass for each input token, for `ROWS` sentences at a time.
    """

    name: ClassVar[str] = "occlusion"
    cites: ClassVar[str] = "Li et al. 2016, arXiv 1612.08220"
    signed: ClassVar[bool] = True

    def explain(
        self, model: Seq2SeqModel, source: Tensor, target: Tensor, instead: Tensor | None = None
    ) -> Explanation:
        prefix = decoder_input(target)
        (batch, length), read = source.shape, source.shape[1] + target.shape[1]
        # (S+T, B, S+T), each with one token unknown
        complete = torch.cat((source, prefix), dim=1).repeat(read, 1, 1)
        hidden = torch.eye(read, dtype=torch.bool, device=source.device)[:, None]
        rows = complete.masked_fill(hidden & (complete != PAD), UNK).flatten(0, 1)
        tokens = [ids.repeat(read, 1).split(ROWS) for ids in (target, instead) if ids is not None]
        occluded = torch.cat(
            [
                log_probabilities(model, some[:, :length], some[:, length:], *following)
                for some, *following in zip(rows.split(ROWS), *tokens, strict=True)
            ]
        ).unflatten(0, (read, batch))
        plain = log_probabilities(model, source, prefix, target, instead)
        drops = (plain - occluded).permute(1, 2, 0)  # (S+T, B, T) -> (B, T, S+T)
        by_source, by_prefix = drops.split([length, read - length], dim=2)
        rest = plain - drops.sum(dim=2)
        return without_padding(Explanation(by_source, by_prefix, rest), source, target)
