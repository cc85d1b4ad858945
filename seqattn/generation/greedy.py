"""Greedy search: the likeliest token at every step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from seqattn.generation.asking import Asker
from seqattn.generation.base import (
    Hypothesis,
    LengthLimit,
    Search,
    largest,
    worth_shrinking,
)
from seqattn.generation.processors import check_ngram, processors
from seqattn.models.base import BOS, EOS, Memory, Seq2SeqModel


@dataclass(frozen=True)
class GreedySearch(Search):
    """Takes the likeliest token until the end, or until the limit.

    Args:
        limit: how long a hypothesis may be.
        no_repeat_ngram: n, so that no n tokens in a row are said twice; 0 for no such ban.

    Raises:
        UserError: for a negative n.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        check_ngram(self.no_repeat_ngram)

    def search(
        self, model: Seq2SeqModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        most = self.limit.of(memory, model.max_target_length)
        longest = int(most.max())
        count, device = memory.ids.shape[0], memory.ids.device
        tokens = torch.full((count, longest), EOS, device=device)
        totals = torch.zeros(count, device=device)
        rows = torch.arange(count, device=device)  # sentence of each row still held
        done = torch.zeros(count, dtype=torch.bool, device=device)
        ids = torch.full((count,), BOS, device=device)
        asker = Asker(model, memory, made=processors(self.limit.minimum, self.no_repeat_ngram))
        for step in range(longest):
            scores = asker.next(ids[:, None])
            best, place = largest(scores, scores.new_zeros(len(rows), 1), 1)
            log_probability, ids = best[:, 0], place[:, 0]
            totals[rows] += log_probability.masked_fill(done, 0.0)
            ids = ids.masked_fill(done, EOS)
            tokens[rows, step] = ids
            done = done | (ids == EOS) | (step + 1 >= most[rows])
            live = int((~done).sum())
            if live == 0:
                break
            if worth_shrinking(live, len(rows)):
                going = (~done).nonzero()[:, 0]
                asker.keep(going)
                rows, ids, done = rows[going], ids[going], done[going]
        return [
            [finished(row, most_tokens, total)]
            for row, most_tokens, total in zip(
                tokens.tolist(), most.tolist(), totals.tolist(), strict=True
            )
        ]


def finished(row: list[int], most: int, log_probability: float) -> Hypothesis:
    """The hypothesis of a row of tokens, up to its end; the score is the mean over its length."""
    row = row[:most]
    ids = row[: row.index(EOS)] if EOS in row else row
    length = len(ids) + (EOS in row)
    return Hypothesis(tuple(ids), log_probability / length, log_probability)
