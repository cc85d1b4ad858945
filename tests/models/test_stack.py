"""What the layers of a stack and its positions must agree on."""

import pytest
import torch

from seqattn.errors import UserError
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import LearnedPosition, RotaryPosition, ShawPosition
from tests.builders import DIM, VOCABULARY, heads, random_ids


def mixed(position):
    """A Transformer whose layers have 4 and 2 heads."""
    shape = TransformerConfig(dim=DIM, ffn_dim=20, encoder_layers=2, decoder_layers=2)
    layers = [heads(), heads(2, 2)]
    slots = Slots(layers, layers, [heads()] * 2, position)
    return shape.build(VOCABULARY, VOCABULARY, True, slots)


@pytest.mark.parametrize("position", [ShawPosition, RotaryPosition])
def test_positions_that_act_on_heads_refuse_layers_with_other_numbers_of_them(position):
    with pytest.raises(UserError, match=r"one number of heads and the layers have 2 and 4; give"):
        mixed(position)


def test_positions_that_act_on_embeddings_serve_layers_with_any_numbers_of_heads():
    model = mixed(LearnedPosition).eval()
    logits = model(random_ids(2, 5), random_ids(2, 3))
    assert torch.isfinite(logits).all()
    assert [layer.self_attention.num_heads for layer in model.encoder.layers] == [4, 2]
