"""Layers compiled for training: the same loss and gradients, and one graph for all lengths."""

import copy

import pytest
import torch

from seqattn.models.stack import compile_layers
from tests.builders import load_choice, load_variant, make_transformer, random_ids, targets
from tests.tolerance import close

SHAPES = [(3, 7, 9), (4, 11, 8), (2, 15, 13), (5, 6, 12), (3, 21, 19)]  # B, S and T

VARIANTS = [("mha", "rope"), ("mha", "t5"), ("sliding_window, small", "rope")]
KERNELS = ["gqa", "moa", "linear", "performer", "entmax", "streaming, small"]
SCHEMES = ["none", "sinusoidal", "learned", "alibi", "shaw", "disentangled", "deberta"]
REST = [(name, "rope") for name in KERNELS] + [("mha", name) for name in SCHEMES]


class Counter:
    """A backend of `torch.compile` that runs graphs as they are, and counts them."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


def batches():
    for seed, (rows, source, target) in enumerate(SHAPES):
        sources, read = random_ids(rows, source, seed=seed), targets(rows, target, seed=seed + 1)
        sources[0, -2:] = read[0, -3:] = 0
        yield sources, read, read.roll(-1, dims=1)


def learnt(model, batch):
    model.zero_grad()
    loss = model.loss(*batch)[0]
    loss.backward()
    return [loss, *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_they_learn_alike(model, twin):
    for batch in batches():
        got, expected = learnt(model, batch), learnt(twin, batch)
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            close(ours, theirs, 1e-4)


@pytest.mark.parametrize(
    ("attention", "position"),
    [*VARIANTS, *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in REST)],
)
def test_batches_of_any_length_share_the_graphs_of_all_layers(attention, position):
    torch.compiler.reset()
    model = make_transformer(
        load_variant(attention), load_choice("position", position), layers=(2, 2)
    ).train()
    twin, counter = copy.deepcopy(model), Counter()
    compile_layers(model, backend=counter)
    assert_they_learn_alike(model, twin)
    # one for encoder layers, decoder layers and last norms each; some mechanisms need another
    assert 3 <= counter.graphs <= (3 if attention in ("mha", "gqa") else 4)


def test_they_are_recomputed_in_the_backward_pass_as_others_are():
    torch.compiler.reset()
    model = make_transformer(layers=(1, 1), checkpoint_activations=True).train()
    twin, counter = copy.deepcopy(model), Counter()
    compile_layers(model, backend=counter)
    assert_they_learn_alike(model, twin)
    assert counter.graphs


@torch.no_grad()
def test_a_search_and_an_evaluation_run_layers_as_they_are():
    torch.compiler.reset()
    model, counter = make_transformer(layers=(1, 1)), Counter()
    compile_layers(model, backend=counter)
    sources, read, following = next(batches())
    model.eval().loss(sources, read, following)
    state = model.start(model.encode(sources))
    model.decode(read[:, :1], state)
    model.train().decode(read[:, 1:2], state)
    assert not counter.graphs
