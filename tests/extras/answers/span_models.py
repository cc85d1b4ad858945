"""Small span models and batches for them."""

from typing import NamedTuple

import torch

from seqattn.extras.answers.span_matching import CLUES, MATCHES
from seqattn.extras.answers.span_recurrent import SpanRecurrentConfig
from seqattn.extras.answers.span_transformer import SpanTransformerConfig
from seqattn.models.transformer import Slots
from seqattn.positions.base import Position
from tests.builders import DIM, VOCABULARY, heads, padded, randomised
from tests.nodes import made

QUESTIONS = [[5, 4, 3], [9, 8, 10, 4, 7, 3], [6, 3]]
CONTEXTS = [[4, 5, 6, 7, 8, 9, 10, 4], [9, 4, 5], [6, 6, 7, 10, 4]]


class Inputs(NamedTuple):
    """What a span model reads."""

    question: torch.Tensor
    context: torch.Tensor
    match: torch.Tensor

    @property
    def characters(self):
        """Each id is a word of its own, of three characters or fewer."""
        letters = torch.arange(VOCABULARY)[:, None] * torch.tensor([1, 7, 40]) % 512
        return letters.masked_fill(letters > 300, 0).expand(len(self.context), -1, -1)

    @property
    def question_words(self):
        return self.question

    @property
    def context_words(self):
        return self.context


def inputs(questions=QUESTIONS, contexts=CONTEXTS, question_left=False, context_left=False):
    """A batch whose matches are random, but the same for the same token in the same place."""
    rows = [
        [[(7 * t + n + k) % 5 / 4 for k in range(MATCHES + CLUES)] for n, t in enumerate(c)]
        for c in contexts
    ]
    longest = max(map(len, rows))
    match = torch.zeros(len(rows), longest, MATCHES + CLUES)
    for number, row in enumerate(rows):
        start = longest - len(row) if context_left else 0
        match[number, start : start + len(row)] = torch.tensor(row)
    return Inputs(padded(questions, question_left), padded(contexts, context_left), match)


def make_recurrent(attention=None, **config):
    torch.manual_seed(0)
    shape = made(SpanRecurrentConfig, **{"dim": DIM, "dropout": 0.0, **config})
    slots = Slots([], [], [attention or heads()], Position)
    return randomised(shape.build(VOCABULARY, slots), scale=0.1).eval()


def make_transformer_reader(attention=None, position=Position, layers=(1, 2), **config):
    torch.manual_seed(0)
    options = {"dim": DIM, "ffn_dim": 20, "dropout": 0.0, **config}
    options |= {"encoder_layers": layers[0], "model_layers": layers[1]}
    shape = made(SpanTransformerConfig, **options)
    slots = Slots([attention or heads()] * sum(layers), [], [heads()], position)
    return randomised(shape.build(VOCABULARY, slots), scale=0.1).eval()
