"""What suits a CPU alone is left out on a GPU, for which the meta device stands."""

import pytest
import torch

from seqattn.attention.scores import AdditiveScore
from seqattn.ops import add_linear
from seqattn.ops.cpu import onednn
from seqattn.ops.cross_entropy import LossTerms
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from tests.operations import operations


@pytest.fixture
def meta(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    monkeypatch.setattr(onednn, "mkl_lags", lambda: True)
    monkeypatch.setattr(onednn, "onednn_is_exact", lambda: True)
    return torch.device("meta")


@pytest.mark.parametrize("tokens", [25_000, 100_000])
def test_the_loss_of_many_tokens_takes_few_launches(meta, tokens):
    features = torch.empty(tokens // 50, 50, 512, device=meta, requires_grad=True)
    weight = torch.empty(32_000, 512, device=meta, requires_grad=True)
    targets = torch.ones(tokens // 50, 50, dtype=torch.long, device=meta)
    with operations() as names:
        blockwise_cross_entropy(
            features, weight, targets, LossTerms(label_smoothing=0.1), tokens=tokens
        )
    assert names.total() < 40 * (1 + tokens / 4096)


def test_the_loss_adds_its_products_in_one_pass(meta):
    features = torch.empty(4, 5, 6, device=meta, requires_grad=True)
    targets = torch.ones(4, 5, dtype=torch.long, device=meta)
    with operations() as names:
        blockwise_cross_entropy(
            features,
            torch.empty(11, 6, device=meta, requires_grad=True),
            targets,
            LossTerms(label_smoothing=0.1),
            tokens=20,
        )
    assert names["addmm_"] == 1


def test_a_map_by_steps_adds_its_product_in_one_launch(meta):
    base, x, weight = (torch.empty(shape, device=meta) for shape in ((2, 5), (2, 4), (5, 4)))
    with operations() as names:
        add_linear(base, x, weight)
    assert names == {"addmm": 1}


def test_additive_scores_of_a_batch_are_made_at_once(meta):
    score = AdditiveScore(512, 512).to(meta)
    with operations() as names:
        score(torch.empty(64, 50, 512, device=meta), torch.empty(64, 50, 512, device=meta))
    assert names["tanh_"] == 1
