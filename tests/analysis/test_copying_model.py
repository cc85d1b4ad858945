"""The model with weights set by hand does what it is said to."""

import pytest
import torch

from seqattn.analysis import capture
from tests.analysis.copying_model import PI, copied, copying_model, read
from tests.builders import random_ids

SOURCE = random_ids(2, 6)


@torch.no_grad()
@pytest.mark.parametrize("pre_norm", [True, False])
def test_it_copies_the_token_at_pi_and_looks_nowhere_else(pre_norm):
    model = copying_model(pre_norm=pre_norm)
    target = copied(SOURCE)
    with capture(model) as maps:
        logits = model(SOURCE, read(target))
    assert torch.equal(logits.argmax(dim=2), target)
    (weights,) = maps["decoder.layers.0.cross_attention"]
    assert torch.equal(weights, torch.eye(6)[list(PI[:6])].expand(2, 2, 6, 6))
    (weights,) = maps["encoder.layers.0.self_attention"]
    assert torch.equal(weights, torch.eye(6).expand(2, 2, 6, 6))
