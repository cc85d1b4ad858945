"""Captured decoding steps give the outputs of plain ones."""

from functools import partial

import pytest
import torch

from seqattn.analysis import capture
from seqattn.generation import GreedySearch, LengthLimit, Sampling, captured_steps, stepper
from seqattn.generation.beam import BeamSearch
from seqattn.generation.captured_steps import CapturedSteps
from seqattn.generation.generator import Generator
from seqattn.generation.processors import NoRepeatNgram
from seqattn.models.recurrent_state import RecurrentState
from tests.builders import fitting, load_choice, load_variant, make_transformer, position_choices
from tests.models.recurrents import make_recurrent

SOURCES = [[4, 5, 3], [5, 3], [4, 9, 10, 5, 5, 3], [7, 8, 4, 3], [9, 9, 8, 3]]
LIMIT = LengthLimit(1.5, 6, minimum=2)
SEARCHES = {
    "greedy": partial(GreedySearch, LIMIT, processors=[NoRepeatNgram(2)]),
    "beam": partial(BeamSearch, LIMIT, beam_size=3, n_best=2),
    "sampling": partial(Sampling, LIMIT, n_best=2),
}
OPTIONS = {
    **{name: lambda n=name: {"attention": load_variant(n)} for name in fitting("decoder")},
    **{n: lambda n=n: {"position": load_choice("position", n)} for n in position_choices()},
    "copies": lambda: {"copy": True},
}


class Replay:
    """A graph on the CPU: the same step on the same tensors."""

    def __init__(self, steps):
        self.steps, self.rows = steps, len(steps._ids)
        self.addresses = self.tensors()

    def tensors(self):
        caches = self.steps._state.caches
        return [x.data_ptr() for cache in caches for x in cache._buffers]

    def replay(self):
        assert self.tensors() == self.addresses
        self.steps._output = self.steps._step(self.steps._ids)


@pytest.fixture
def graphs(monkeypatch):
    """Make every search capture its steps, with room for few tokens; lists what is captured."""
    made = []

    def captured(steps, ids):
        steps._ids = ids.clone()
        made.append(Replay(steps))
        return made[-1]

    monkeypatch.setattr(stepper, "replays", lambda model, device: True)
    monkeypatch.setattr(captured_steps, "_TOKENS", 4)
    monkeypatch.setattr(CapturedSteps, "_capture", captured)
    return made


@pytest.mark.parametrize(
    ("options", "search"),
    [*((name, "beam") for name in OPTIONS), *(("mha", name) for name in ("greedy", "sampling"))],
)
def test_outputs_are_those_of_plain_steps(graphs, options, search):
    model = make_transformer(**OPTIONS[options]()).eval()
    search = SEARCHES[search]
    plain = Generator(model, search(graph=False)).generate(SOURCES)
    assert not graphs
    found = Generator(model, search()).generate(SOURCES)
    assert [[one.ids for one in some] for some in found] == [
        [one.ids for one in some] for some in plain
    ]
    pairs = [pair for rows in zip(found, plain) for pair in zip(*rows)]
    assert all(abs(x.log_probability - y.log_probability) < 1e-4 for x, y in pairs)


@pytest.mark.parametrize(
    ("name", "fixed"),
    [("mha", True), ("gqa", True), ("entmax", True), ("sliding_window", False), ("linear", False)],
)
def test_caches_that_only_grow_are_fixed(graphs, name, fixed):
    model = make_transformer(attention=load_choice("attention", name)).eval()
    Generator(model, SEARCHES["beam"]()).generate(SOURCES)
    assert bool(graphs) == fixed


def test_a_graph_is_captured_again_when_its_tensors_move(graphs):
    model = make_transformer().eval()
    limit = LengthLimit(0.0, 20, minimum=20)
    Generator(model, GreedySearch(limit)).generate(SOURCES)
    assert [graph.rows for graph in graphs] == [5, 5, 5, 5]  # rooms of 4, 8, 16 and 32
    graphs.clear()
    lengths = LengthLimit(2.0, 0)  # of 4 to 12 tokens
    Generator(model, GreedySearch(lengths, processors=[_never_ends])).generate(SOURCES)
    assert [graph.rows for graph in graphs] == [5, 5, 1]


def _never_ends(scores, said):
    scores[:, 3] = -torch.inf


def test_recurrent_and_observed_models_take_plain_steps(graphs, monkeypatch):
    assert not RecurrentState.fix(None, 4)
    Generator(make_recurrent("bahdanau").eval(), GreedySearch(LIMIT)).generate(SOURCES)
    Generator(make_transformer().eval(), BeamSearch(LIMIT, coverage_penalty=0.1)).generate(SOURCES)
    assert not graphs
    monkeypatch.undo()
    model = make_transformer().eval()
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert captured_steps.replays(model, cuda)
    assert not captured_steps.replays(model, torch.device("cpu"))
    with capture(model):
        assert not captured_steps.replays(model, cuda)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_a_gpus_graphs_give_the_outputs_of_plain_steps(search):
    model = make_transformer().eval().cuda()
    search = SEARCHES[search]
    plain, found = (Generator(model, search(graph=on)).generate(SOURCES) for on in (False, True))
    assert [some[0].ids for some in found] == [some[0].ids for some in plain]
