"""What the decoder would predict after each layer."""

import pytest
import torch

from seqattn.errors import UserError
from seqattn.extras.explain.lens import lens
from tests.builders import make_transformer, padded
from tests.models.recurrents import make_recurrent

SOURCES, TARGETS = [[4, 5, 6, 3], [9, 3]], [[6, 4, 3], [5, 8, 7, 10, 3]]


@pytest.mark.parametrize("pre_norm", [True, False])
def test_each_row_is_what_a_decoder_of_so_many_layers_would_predict(pre_norm):
    def made():
        return make_transformer(pre_norm=pre_norm)

    source, target = padded(SOURCES), padded(TARGETS)
    found = lens(made(), source, target)
    assert found.probability.shape == (2, 3, 5)
    begun = torch.cat((torch.full_like(target[:, :1], 2), target[:, :-1]), dim=1)
    for layers in (1, 2):
        model = made()
        model.decoder.layers = model.decoder.layers[:layers]
        said = model(source, begun).softmax(dim=2)
        own = said.gather(2, target[..., None])
        torch.testing.assert_close(found.probability[:, layers], own[..., 0])
        assert torch.equal(found.likeliest[:, layers], said.argmax(dim=2))
        assert torch.equal(found.rank[:, layers], (said > own).sum(dim=2) + 1)


@pytest.mark.parametrize("model", [make_recurrent("bahdanau"), make_transformer(copy=True)])
def test_models_without_layers_to_read_are_refused(model):
    with pytest.raises(UserError, match="there is no lens: "):
        lens(model, padded(SOURCES), padded(TARGETS))
