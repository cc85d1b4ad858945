"""Captured decoding steps give the outputs of plain ones."""

import gc
import threading
import weakref
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_leaves

from seqattn.analysis import capture
from seqattn.generation import GreedySearch, LengthLimit, Sampling, captured_steps
from seqattn.generation.beam import BeamSearch
from seqattn.generation.captured_steps import at_least
from seqattn.generation.constraints import Constraints
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.generator import Generator
from seqattn.generation.processors import NoRepeatNgram, Processor
from seqattn.models import stack
from seqattn.ops.gpu import graphs as gpu_graphs
from seqattn.ops.layers import Linear
from seqattn.training.optim import adamw
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization
from tests.builders import fitting, load_choice, load_variant, make_transformer, position_choices
from tests.graphs import captured, same_outputs
from tests.models.recurrents import make_recurrent

SOURCES = [[4, 5, 3], [5, 3], [4, 9, 10, 5, 5, 3], [7, 8, 4, 3], [9, 9, 8, 3]]
LIMIT = LengthLimit(1.5, 6, minimum=2)
BEAM = partial(BeamSearch, LIMIT, beam_size=3, n_best=2)
SEARCHES = {
    "greedy": partial(GreedySearch, LIMIT),
    "greedy with a processor": partial(GreedySearch, LIMIT, processors=[NoRepeatNgram(2)]),
    "beam": BEAM,
    "beam until the best is certain": partial(BEAM, early_stopping=False),
    "beam with a processor": partial(BEAM, processors=[NoRepeatNgram(2)]),
    "sampling": partial(Sampling, LIMIT, n_best=2),
    "sampling from few": partial(Sampling, LIMIT, top_k=4, top_p=0.9, temperature=1.5),
}
OPTIONS = {
    **{name: lambda n=name: {"attention": load_variant(n)} for name in fitting("decoder")},
    **{n: lambda n=n: {"position": load_choice("position", n)} for n in position_choices()},
    "copies": lambda: {"copy": True},
}
IN_ORDER = {"fixed", "fixed, small", "strided", "strided, small"}
"""Attentions that read tokens at places which depend on their number, and so are not captured."""


@pytest.mark.parametrize("name", OPTIONS)
def test_beams_are_those_of_plain_steps(name):
    """With rows that end at different steps, so that both sizes of tensors change."""
    graphs = same_outputs(make_transformer(**OPTIONS[name]()).eval(), BEAM, SOURCES)
    assert bool(graphs) == (name not in IN_ORDER)
    assert name in IN_ORDER or sum(graph.replayed > 0 for graph in graphs) >= 3


@pytest.mark.parametrize("late", [0, 4])
@pytest.mark.parametrize("name", SEARCHES)
def test_so_are_the_outputs_of_each_search(name, late):
    """Also if a search reads only later that all sentences have ended."""
    assert same_outputs(make_transformer().eval(), SEARCHES[name], SOURCES, late=late)


@pytest.mark.parametrize("attention", ["linear", "sliding_window, small", "streaming, small"])
@pytest.mark.parametrize("name", ["greedy", "sampling"])
def test_so_are_those_of_caches_of_bounded_size_without_beams(attention, name):
    model = make_transformer(attention=load_variant(attention)).eval()
    assert same_outputs(model, SEARCHES[name], SOURCES)


def test_a_processor_is_not_called_after_the_end():
    """As a server sends what it is called with."""
    said = []

    class Watch(Processor):
        def __call__(self, scores, ids):
            said.append(ids.clone())

    model, sources = make_transformer().eval(), [SOURCES[0]]
    with captured(late=4) as graphs:
        [[best]] = Generator(model, GreedySearch(LIMIT, processors=[Watch()])).generate(sources)
    assert graphs
    assert len(said) <= len(best.ids) + 1


def test_so_are_those_of_sentences_with_constraints():
    each = [Constraints(ids=ids) for ids in ((4, 5), (), (6,), (7, 7, 7), ())]
    assert same_outputs(make_transformer().eval(), BEAM, SOURCES, constraints=each)


def test_so_are_those_of_more_sentences_and_tokens_than_the_largest_sizes():
    sizes = {"rows": (2,), "source": (4,), "capacity": (4,)}
    assert same_outputs(make_transformer().eval(), SEARCHES["greedy"], SOURCES, **sizes)


def test_sizes_beyond_the_largest_are_its_multiples():
    assert [at_least(n, (32, 128)) for n in (1, 32, 33, 128, 129, 300)] == [
        32, 32, 128, 128, 256, 384,
    ]  # fmt: skip


def test_so_are_those_of_two_threads_at_once():
    model, found = make_transformer().eval(), {}
    sources = {name: SOURCES[number:] for number, name in enumerate(SEARCHES)}
    plain = {
        name: _outputs(model, one(graph=False), sources[name]) for name, one in SEARCHES.items()
    }

    def work(names):
        for name in names:
            found[name] = _outputs(model, SEARCHES[name](), sources[name])

    with captured() as graphs:
        threads = [threading.Thread(target=work, args=[list(SEARCHES)[n::2]]) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert graphs
    assert found == plain


def _outputs(model, search, sources=SOURCES):
    found = Generator(model, search).generate(sources)
    return [[one.ids for one in some] for some in found]


@pytest.mark.parametrize("position", ["sinusoidal", "deberta"])
def test_graphs_read_changed_weights_and_are_captured_again_for_moved_ones(position):
    search = GreedySearch(LengthLimit(0.0, 7, minimum=7))
    model = make_transformer(position=load_choice("position", position)).eval()
    with captured() as graphs:
        _outputs(model, search)
        count = len(graphs)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(torch.rand_like(parameter))  # as an optimizer does
        changed, plain = _outputs(model, search), replace(search, graph=False)
        assert changed == _outputs(model, plain)
        assert len(graphs) == count
        for parameter in model.parameters():
            parameter.data = parameter.data * -1
        moved = _outputs(model, search)
        assert moved == _outputs(model, plain) != changed
        assert len(graphs) > count


def test_graphs_do_not_keep_their_model():
    with captured():
        model = make_transformer().eval()
        _outputs(model, GreedySearch(LIMIT))
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None


def test_graphs_of_much_memory_are_dropped_as_are_all_after_validation(monkeypatch):
    model = make_transformer().eval()
    task = Seq2SeqTask(model, Optimization(adamw, constant(0)))
    monkeypatch.setattr(task, "log_dict", lambda *scores, **options: None)
    cases = (1e9, bool, 1), (1e4, bool, 2), (1e9, task.on_validation_epoch_end, 2)
    for memory, between, times in cases:
        captured_steps.forget(model)
        with captured(memory=memory) as graphs:
            _outputs(model, GreedySearch(LIMIT))
            count = len(graphs)
            between()
            _outputs(model, GreedySearch(LIMIT))
            assert len(graphs) == times * count


def test_what_cannot_be_captured_is_searched_with_plain_steps(capsys):
    model, wrong = make_transformer().eval(), "operation not permitted when stream is capturing"
    plain = _outputs(model, GreedySearch(LIMIT, graph=False))
    captured_steps._say_why_not.cache_clear()
    memory = torch.OutOfMemoryError("out of memory")
    for error, tried in ((RuntimeError(wrong), 1), (memory, 2)):
        with captured(error=error) as tries:
            assert _outputs(model, GreedySearch(LIMIT)) == plain
            assert _outputs(model, GreedySearch(LIMIT)) == plain
        assert len(tries) == tried
        captured_steps.forget(model)
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 2
    assert [line.rpartition(": ")[2] for line in printed] == [wrong, "out of memory"]
    assert all("cannot be captured" in line for line in printed)


def test_compiling_steps_that_are_not_captured_is_said_to_have_no_effect(capsys):
    captured_steps._say_it_is_ignored.cache_clear()
    model = make_transformer().eval()
    for _ in range(2):
        _outputs(model, GreedySearch(LIMIT, graph="compiled"))
    assert capsys.readouterr().err.count("generation.graph=compiled has no effect") == 1


def test_other_models_take_plain_steps():
    model, recurrent = make_transformer().eval(), make_recurrent("bahdanau").eval()
    with captured() as graphs:
        _outputs(recurrent, GreedySearch(LIMIT))
        _outputs(Ensemble([model, model]), GreedySearch(LIMIT))
        _outputs(model, BeamSearch(LIMIT, coverage_penalty=0.1))
        with capture(model):
            _outputs(model, GreedySearch(LIMIT))
    assert not graphs
    assert not gpu_graphs.may_replay(torch.device("cpu"))


@pytest.mark.parametrize("once", [True, False])
def test_weights_are_converted_to_half_precision_once(monkeypatch, once):
    model = make_transformer().eval()
    if not once:  # so that the count can fail
        monkeypatch.setattr(captured_steps.NarrowWeights, "used", lambda self: nullcontext())
    with captured() as graphs, torch.autocast("cpu", torch.bfloat16):
        assert _outputs(model, GreedySearch(LIMIT)) == _outputs(
            model, GreedySearch(LIMIT, graph=False)
        )
        weights = {layer.weight.data_ptr() for layer in model.modules() if type(layer) is Linear}
        read = {
            x.data_ptr()
            for function, args, kwargs, _ in graphs[0].done
            for x in tree_leaves((args, kwargs))
            if isinstance(x, torch.Tensor) and "embedding" not in function.name()
        }
        assert bool(weights & read) != once
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(torch.rand_like(parameter))
        assert _outputs(model, GreedySearch(LIMIT)) == _outputs(
            model, GreedySearch(LIMIT, graph=False)
        )


@pytest.mark.parametrize("name", ["mha", "gqa", "linear", "sliding_window, small"])
def test_layers_of_captured_steps_compile_as_one_graph_for_all_sizes(monkeypatch, name):
    torch.compiler.reset()
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiling = partial(stack.compiling_steps, backend=counting)
    monkeypatch.setattr(captured_steps, "compiling_steps", compiling)
    model = make_transformer(attention=load_variant(name)).eval()
    made = same_outputs(model, partial(BEAM, graph="compiled"), SOURCES)
    assert len(made) >= 3
    assert not torch._dynamo.utils.counters["graph_break"]
    assert 2 <= len(graphs) <= 4  # a layer and the norm, each for one size and for any


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("search", SEARCHES)
def test_a_gpus_graphs_give_the_outputs_of_plain_steps(search):
    model = make_transformer().eval().cuda()
    plain, *found = (_outputs(model, SEARCHES[search](graph=on)) for on in (False, True, True))
    assert found == [plain, plain]
    assert captured_steps._captures[model]._idle
