"""What must not move a sentence's logits: padding, its neighbors, what comes later."""

import pytest
import torch

from seqattn.tokens import PAD
from tests.builders import padded, targets
from tests.models.families import families, make
from tests.tolerance import close

SOURCES = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3], [6, 6, 7, 10, 3]]
TARGETS = [[2, 5, 6], [2, 4, 4, 9, 10], [2, 7, 8, 8]]


MODELS = families()
FEW = [model for model in MODELS if model.id in ("mha-none", "rnn bahdanau")]


@pytest.fixture(params=MODELS)
def model(request):
    return make(request.param)


def alone(model, number):
    return model(torch.tensor([SOURCES[number]]), torch.tensor([TARGETS[number]]))[0]


@torch.inference_mode()
def test_logits_depend_on_neither_padding_nor_neighbors(model):
    expected = [alone(model, number) for number in range(len(SOURCES))]
    blank = torch.full((3, 9), PAD)
    source, target = padded(SOURCES), padded(TARGETS)
    batches = [
        (padded(SOURCES, source_left), padded(TARGETS, target_left))
        for source_left in (False, True)
        for target_left in (False, True)
    ]
    batches.append((torch.cat((blank, source, blank), dim=1), torch.cat((target, blank), dim=1)))
    for source, target in batches:
        logits = model(source, target)
        for number, row in enumerate(expected):
            got = logits[number, target[number] != PAD]
            close(got, row, 5e-5)
    order = [2, 0, 1]
    close(model(source[order], target[order]), logits[order], 5e-5)


def test_logits_do_not_depend_on_later_target_tokens(model):
    source, target = padded(SOURCES), targets(3, 6)
    table = model.target_embedding
    embeddings = []
    table.register_forward_hook(
        lambda module, args, out: embeddings.append(out.detach().requires_grad_()) or embeddings[-1]
    )
    logits = model(source, target)
    for t in range(6):
        (gradient,) = torch.autograd.grad(
            logits[:, t].square().sum(), embeddings[0], retain_graph=True
        )
        assert (gradient[:, t + 1 :] == 0).all()
        assert (gradient[:, t].abs().amax(dim=1) > 0).all()


def test_a_source_of_nothing_but_padding_gives_finite_logits_and_gradients(model):
    source = padded(SOURCES)
    source[1] = PAD
    logits = model(source, padded(TARGETS))
    assert logits.isfinite().all()
    logits.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    close(logits[0, :3], alone(model, 0), 5e-5)


@torch.inference_mode()
@pytest.mark.parametrize("model", FEW, indirect=True)
def test_the_memory_says_what_is_real(model):
    source = padded(SOURCES, left=True)
    memory = model.encode(source)
    assert torch.equal(memory.real, source != PAD)
    assert torch.equal(memory.ids, source)
