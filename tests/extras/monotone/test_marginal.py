"""Exact marginalization against enumeration of all paths; more laws are in tests/models."""

from itertools import combinations_with_replacement

import pytest
import torch

from seqattn.errors import UserError
from seqattn.extras.monotone.marginal import transition
from seqattn.ops.cross_entropy import LossTerms
from tests.builders import padded
from tests.models.recurrents import make_recurrent

SOURCES, TARGETS = [[4, 5, 6, 3], [9, 3]], [[2, 5, 6, 7], [2, 4]]
FOLLOWING = padded([[5, 6, 7, 3], [4, 3]])


def model_of(**options):
    return make_recurrent("hard_monotonic", **options).double()


def by_paths(model, source, target):
    """log p(y) of a target by enumeration: each path that never goes back, in numbers."""
    decoder = model.decoder
    memory = model.encode(torch.tensor([source]))
    annotations = decoder.cross_attention.project(memory.outputs, memory.real)
    state, steps = list(model.bridge(memory.last)), []
    for token in target[:-1]:
        x = model.target_embedding(torch.tensor([[token]]))
        for number, layer in enumerate(decoder.layers):
            x, state[number] = layer(x, state[number])
        steps.append(x[:, 0])
    scores = [decoder.cross_attention.score(top[:, None], annotations.keys)[0, 0] for top in steps]
    words = [
        [
            decoder.words(decoder.readout(top[0], h, top[0])).log_softmax(dim=-1)
            for h in memory.outputs[0]
        ]
        for top in steps
    ]
    total = torch.zeros(()).double()
    for path in combinations_with_replacement(range(len(source)), len(steps)):
        product, last = torch.ones(()).double(), 0
        for t, place in enumerate(path):
            exps = scores[t].exp()
            product = product * exps[place] / exps[last:].sum()
            product, last = product * words[t][place][target[t + 1]].exp(), place
        total = total + product
    return total.log()


@pytest.mark.parametrize("options", [{}, {"cell": "gru", "decoder_layers": 2}])
def test_the_marginal_and_its_gradient_equal_enumeration_over_all_paths(options):
    model = model_of(**options)
    loss = model.loss(padded(SOURCES), padded(TARGETS), FOLLOWING)
    ends = [[*target, 3] for target in TARGETS]
    expected = -sum(by_paths(model, *pair) for pair in zip(SOURCES, ends))
    torch.testing.assert_close(loss.nll, expected)
    for one, other in zip(*(grads(total, model) for total in (loss.smoothed, expected))):
        torch.testing.assert_close(one, other)


def grads(total, model):
    return torch.autograd.grad(total, list(model.parameters()))


def test_the_words_after_each_prefix_sum_to_1_and_so_do_the_weights():
    model = model_of()
    state = model.start(model.encode(padded(SOURCES, left=True)))
    found = model.log_probabilities(padded(TARGETS), state, need_weights=True)
    real = padded(TARGETS) != 0
    for part in (found.log_probabilities.exp(), found.weights):
        sums = part.sum(dim=2)[real]
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_places_before_the_last_stay_impossible_at_any_score(dtype):
    scores = torch.tensor([[-500.0, 3e3, 0.0, -3e3, 20.0]], dtype=dtype, requires_grad=True)
    before = torch.tensor([[-1e6, -1e6, 0.0, -1e6, -1e6]], dtype=dtype)
    place = transition(scores, before)
    expected = torch.cat((torch.zeros(1, 2).to(dtype), scores[:, 2:].softmax(dim=1)), dim=1)
    torch.testing.assert_close(place.exp(), expected)
    place[:, 2:].exp().square().sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    "options", [{"order": "before"}, {"input_feeding": True}, {"copy": True}], ids=str
)
def test_what_reads_one_context_is_refused(options):
    with pytest.raises(UserError) as caught:
        make_recurrent("hard_monotonic", **options)
    assert str(caught.value) == (
        "attention=hard_monotonic sums over all alignments, so nothing may read a single context; "
        "set model.order=after model.input_feeding=false model.copy=false"
    )


def test_label_smoothing_applies_and_two_passes_are_refused():
    model = model_of()
    sides = padded(SOURCES), padded(TARGETS), FOLLOWING
    plain, smooth = (model.loss(*sides, LossTerms(label_smoothing=e)) for e in (0.0, 0.2))
    torch.testing.assert_close(plain.nll, smooth.nll)
    assert smooth.smoothed > plain.smoothed
    with pytest.raises(UserError, match=r"^attention=hard_monotonic supports neither task.r_drop"):
        model.loss(*sides, LossTerms(r_drop=1.0))
