"""What the layers of a stack and its positions must agree on."""

import pytest
import torch

from seqattn.attention.base import Abilities, Mixer
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, LengthLimit
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import (
    ALiBiPosition,
    LearnedPosition,
    RotaryPosition,
    ShawPosition,
    T5Position,
)
from tests.builders import DIM, VOCABULARY, heads, random_ids
from tests.tolerance import close


def mixed(position):
    """A Transformer whose layers have 4 and 2 heads."""
    shape = TransformerConfig(dim=DIM, ffn_dim=20, encoder_layers=2, decoder_layers=2)
    layers = [heads(), heads(2, 2)]
    slots = Slots(layers, layers, [heads()] * 2, position)
    return shape.build(VOCABULARY, VOCABULARY, True, slots)


@pytest.mark.parametrize("position", [ShawPosition, RotaryPosition])
def test_positions_that_act_on_heads_refuse_layers_with_other_numbers_of_them(position):
    with pytest.raises(
        UserError, match=r"the same number of heads in all layers, got 2 and 4; set"
    ):
        mixed(position)


def test_positions_that_act_on_embeddings_serve_layers_with_any_numbers_of_heads():
    model = mixed(LearnedPosition).eval()
    logits = model(random_ids(2, 5), random_ids(2, 3))
    assert torch.isfinite(logits).all()
    assert [layer.self_attention.num_heads for layer in model.encoder.layers] == [4, 2]


class RunningMean(Mixer):
    """No attention: each token becomes the mean of what it may see, by a sum that is kept."""

    abilities = Abilities(
        bidirectional=True, causal=True, cross=False, incremental=True, hooks=frozenset(),
        dropout=False, weights=False,
    )  # fmt: skip

    def __init__(self, query_dim, memory_dim):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(query_dim))

    def make_cache(self, beams):
        return Sums(beams)

    def mix(self, x, mask, position, cache=None):
        x = x * self.scale
        if not mask.causal:
            real = torch.ones_like(x[..., :1]) if mask.real is None else mask.real[..., None]
            mean = (x * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
            return mean.expand_as(x)
        sums, count = x.cumsum(dim=1), torch.arange(1, x.shape[1] + 1)
        if cache is not None:
            sums, count = sums + cache.total, count + cache.count
            cache.total, cache.count = sums[:, -1:], int(count[-1])
        return sums / count[:, None]


class Sums:
    """The past of a running mean."""

    nbytes = 0

    def __init__(self, beams):
        self.beams, self.total, self.count = beams, 0.0, 0

    def reorder(self, index):
        first = torch.arange(len(index))[:, None] * self.beams
        self.total = self.total[(index + first).flatten()]

    def keep(self, sentences):
        self.total = self.total.unflatten(0, (-1, self.beams))[sentences].flatten(0, 1)


def test_a_layer_takes_a_mixer_that_does_not_attend():
    shape = TransformerConfig(dim=DIM, ffn_dim=20, encoder_layers=2, decoder_layers=2)
    mixers = [heads(), RunningMean]
    slots = Slots(mixers, mixers, [heads()] * 2, LearnedPosition)
    model = shape.build(VOCABULARY, VOCABULARY, True, slots).eval()
    source, target = random_ids(2, 5), random_ids(2, 4)
    with torch.inference_mode():
        state = model.start(model.encode(source))
        steps = [model.decode(target[:, t : t + 1], state) for t in range(4)]
        close(torch.cat(steps, dim=1), model(source, target))
        assert not state.can_crop
        sources = [[4, 5, 3], [6, 7, 8, 9, 3]]
        together = Generator(model, BeamSearch(LengthLimit(1.0, 3), 3)).generate(sources)
        alone = Generator(model, BeamSearch(LengthLimit(1.0, 3), 3, batch_size=1)).generate(sources)
    assert [[h.ids for h in found] for found in together] == [[h.ids for h in f] for f in alone]
    nothing = [RunningMean] * 2
    alone = slots._replace(encoder=nothing, decoder=nothing, position=RotaryPosition)
    with pytest.raises(UserError, match=r"^RunningMean does not support RotaryPosition"):
        shape.build(VOCABULARY, VOCABULARY, True, alone)


@pytest.mark.parametrize("encoder", [[0, 1], [0, 0]], ids=["in one stack", "in the other"])
@pytest.mark.parametrize("position", [RotaryPosition, ALiBiPosition, T5Position, ShawPosition])
def test_beside_attentions_a_mixer_has_no_position_and_every_weight_has_a_gradient(
    position, encoder
):
    """Weights without a gradient would end a training on several devices."""
    shape = TransformerConfig(
        dim=DIM, ffn_dim=20, encoder_layers=2, decoder_layers=2, share_embeddings="none"
    )
    mixers = [RunningMean, heads()]
    slots = Slots([mixers[kind] for kind in encoder], mixers, [heads()] * 2, position)
    model = shape.build(VOCABULARY, VOCABULARY, True, slots)
    source, target = random_ids(2, 5), random_ids(2, 4)
    model(source, target).square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []
    with torch.inference_mode():
        state = model.eval().start(model.encode(source))
        steps = [model.decode(target[:, t : t + 1], state) for t in range(4)]
        close(torch.cat(steps, dim=1), model(source, target))
