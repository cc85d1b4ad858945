"""A tiny model with every position scheme learns an order that one without positions cannot."""

import pytest
import torch

from seqattn.generation import Generator, GreedySearch
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.tokens import EOS
from tests.builders import heads, load_choice, position_choices
from tests.models.test_learning import DIM, TASKS, VOCABULARY, sentences, train


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", position_choices())
def test_a_tiny_model_learns_to_reverse_by_its_positions(scheme):
    torch.manual_seed(0)
    factory = load_choice("position", scheme)
    slots = Slots([heads()] * 2, [heads()], [heads()], factory)
    config = TransformerConfig(dim=DIM, ffn_dim=64, dropout=0.0)
    model = config.build(VOCABULARY, VOCABULARY, True, slots)
    train(model, TASKS["reverse"], steps=800)
    words = sentences(200, torch.Generator().manual_seed(2))
    found = Generator(model, GreedySearch()).generate([[*row, EOS] for row in words])
    right = sum(list(best.ids) == row[::-1] for (best,), row in zip(found, words))
    assert right <= 120 if scheme == "none" else right >= 170
