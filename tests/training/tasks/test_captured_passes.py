"""Captured passes train as plain ones, to the bit, on a CPU that replays recorded operations."""

from functools import partial

import pytest
import torch

from seqattn.ops.cross_entropy import LossTerms
from seqattn.training import captured_passes
from seqattn.training.optim import adamw
from seqattn.training.precision import Shadow
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization
from seqattn.training.trainer_options import TrainerOptions
from tests.builders import (
    VOCABULARY,
    WHOLE,
    load_choice,
    load_variant,
    make_transformer,
    position_choices,
)
from tests.cli.small import checkpoint, train, train_arguments, write_corpus
from tests.graphs import recording
from tests.models.recurrents import ALIGNMENTS, make_recurrent
from tests.training.tasks.test_effective_batch import batch_of, fit_batches
from tests.training.tasks.test_halving import fails_backward, fails_forward

SIZES = ((2, 6, 4, 1), (3, 4, 6, 2), (2, 6, 4, 0), (1, 2, 2, 0))
"""Rows, tokens of source and target, and padding of all rows but the first, at least."""
ATTENTIONS = WHOLE - {"bigbird, small", "moa"}
"""The first reads a number on a CPU, though not on a GPU; the other adds to the loss."""


def batches(epochs=7):
    """Batches whose sizes come back in another order."""
    sizes = [size for number in range(epochs) for size in SIZES[number % 2 :]]
    return [batch(number, *size) for number, size in enumerate(sizes)]


def batch(seed, count, source, target, padding=1):
    ids = torch.randint(4, VOCABULARY, (2, count, 9), generator=torch.Generator().manual_seed(seed))
    sides = zip(ids.tolist(), (source, target))
    first, second = (
        [row[: size - padding * (number > 0)] for number, row in enumerate(side)]
        for side, size in sides
    )
    return batch_of(first, second)


def trained(model, sizes=9, kind=Seq2SeqTask, error=None, precision=None, data=None, **settings):
    """Return the weights after training, and the graphs."""
    graphs, settings = [], {"optimizer": partial(adamw, lr=0.01), **settings}
    task = kind(model.train(), Optimization(schedule=constant(0), **settings))
    task.captured_sizes = sizes
    with recording(captured_passes, graphs, error=error, is_at_hand=lambda x: False):
        options = {"precision": precision}
        if precision == "bf16-shadow":
            options = {"plugins": [Shadow("cpu")]}
        fit_batches(task, data or batches(), accumulate_grad_batches=2, **options)
    return [weight.detach().clone() for weight in task.model.parameters()], graphs


def check(make, sizes=9, **options):
    """Check that captured passes train as plain ones, and return the graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured_passes, "_PLAIN_BATCHES", 1_000)
        plain, none = trained(make(), sizes, **options)
    weights, graphs = trained(make(), sizes, **options)
    assert not none
    assert all(map(torch.equal, plain, weights))
    return graphs


@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_attentions_train_as_in_plain_passes(name):
    assert len(check(lambda: make_transformer(load_variant(name), dropout=0.3))) == 2 * 4


@pytest.mark.parametrize(
    ("make", "tolerance"),
    [
        (partial(make_transformer, share_embeddings="none"), 0.0),
        (partial(make_transformer, share_embeddings="all"), 1e-5),  # sums in another order
        (make_recurrent, 1e-5),
    ],
)
def test_plain_passes_train_as_without_them(make, tolerance):
    """So that graphs are not compared with the same mistake."""
    settings = {"optimizer": lambda model, fused: torch.optim.SGD(model.parameters(), lr=0.1)}
    graphs, ordinary = (trained(make(dropout=0.3), sizes, **settings)[0] for sizes in (9, 0))
    before = [*make().parameters()]
    assert not any(map(torch.equal, ordinary, before))
    for one, other in zip(graphs, ordinary, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", position_choices())
def test_so_do_position_schemes(name):
    assert check(lambda: make_transformer(position=load_choice("position", name), dropout=0.3))


@pytest.mark.parametrize("name", sorted(ALIGNMENTS))
def test_so_do_recurrent_models(name):
    assert check(lambda: make_recurrent(name, dropout=0.3))


@torch.enable_grad()
def accumulator(weight):
    """The node that adds to the gradient of a weight: the same one while a graph has it."""
    return weight.view_as(weight).grad_fn.next_functions[0][0]


@pytest.mark.parametrize(
    "make",
    [
        make_transformer,
        lambda: make_transformer(position=load_choice("position", "deberta")),
        lambda: make_transformer(load_variant("linformer")),
        lambda: make_recurrent("bahdanau"),
    ],
)
def test_no_graph_of_a_batch_is_there_when_the_next_is_captured(monkeypatch, make):
    """Its nodes would run on the stream of that batch, which a GPU refuses in a capture."""
    model, forward, alive = make(), captured_passes.PlainPass.forward, []

    def marked(own, *inputs):
        alive.extend(accumulator(weight).metadata.get("marked") for weight in model.parameters())
        features = forward(own, *inputs)
        for weight in model.parameters():
            accumulator(weight).metadata["marked"] = True
        alive.append(accumulator(weight).metadata["marked"])
        return features

    monkeypatch.setattr(captured_passes.PlainPass, "forward", marked)
    trained(model, sizes=1, data=[batch(0, *SIZES[0]), batch(1, *SIZES[1])])
    assert alive.count(True) == 2


OPTIONS = {
    "one size": {"sizes": 1},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "bf16-shadow": {"precision": "bf16-shadow"},
    "R-Drop": {"terms": LossTerms(r_drop=1.0)},
    "SimCut": {"terms": LossTerms(simcut=1.0, label_smoothing=0.1)},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("shared", ["all", "none"])
def test_so_do_losses_and_precisions(name, shared):
    make = partial(
        make_transformer, dropout=0.3, layer_drop=0.2, drop_heads=0.2, share_embeddings=shared,
        word_dropout=0.1, output_bias=True,
    )  # fmt: skip
    graphs = check(make, **OPTIONS[name])
    assert len(graphs) == 2 * OPTIONS[name].get("sizes", 4)
    assert min(graph.replayed for graph in graphs) > 1


def test_so_does_a_model_that_thaws_or_whose_weights_move():
    class Changing(Seq2SeqTask):
        def training_step(self, batches, index):
            self.model.encoder.requires_grad_(index < 8 or index > 12)
            if index == 17:
                self.model.head.linear.weight.data = self.model.head.linear.weight.data.clone()
            return super().training_step(batches, index)

    assert len(check(make_transformer, kind=Changing, data=batches() * 2)) > 2 * 4


@pytest.mark.parametrize("fails", [fails_forward, fails_backward])
def test_so_does_one_that_runs_out_of_memory(monkeypatch, capfd, fails):
    data = [*batches(), batch(1, 4, 6, 4), *batches()]
    fails(monkeypatch, most=3)
    assert check(make_transformer, data=data)
    assert capfd.readouterr().err.count("no longer captured, so slower: out of memory") == 2


def test_so_does_one_that_cannot_be_captured(capfd):
    error = RuntimeError("operation not permitted when stream is capturing")
    plain, _ = trained(make_transformer(), error=error)
    weights, tries = trained(make_transformer())
    assert tries
    assert all(map(torch.equal, plain, weights))
    assert capfd.readouterr().err.count(f"so slower: {error}\n") == 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: make_transformer(copy=True), "reads attention weights"),
        (lambda: make_transformer(load_variant("moa")), "adds to the loss"),
        (lambda: make_transformer(checkpoint_activations=True), "computes layers again"),
    ],
)
def test_what_would_be_wrong_is_not_captured_and_said(capfd, make, reason):
    weights, graphs = trained(make())
    plain, _ = trained(make(), 0)
    assert not graphs
    assert all(map(torch.equal, plain, weights))
    [line] = [x for x in capfd.readouterr().err.splitlines() if "trainer.cuda_graphs" in x]
    assert "has no effect" in line
    assert reason in line


def test_a_resumed_run_is_a_whole_one(tmp_path, monkeypatch):
    corpus, graphs = write_corpus(tmp_path / "corpus"), []
    monkeypatch.setattr(TrainerOptions, "check_device", lambda self: None)
    words = ("trainer.cuda_graphs=9", "loader.round_to=4", "task.final=null", "model.dropout=0.1")
    run_dirs = [tmp_path / name for name in ("whole", "parted")]
    with recording(captured_passes, graphs, is_at_hand=lambda x: False):
        for run_dir, steps in zip(run_dirs, (40, 20)):
            train(train_arguments(corpus, *words, f"run_dir={run_dir}", steps=steps, every=20))
        train([f"resume={run_dir}", "trainer.max_steps=40"])
    assert max(graph.replayed for graph in graphs) > 3
    whole, parted = (checkpoint(run_dir)["state_dict"] for run_dir in run_dirs)
    assert all(torch.equal(weight, parted[name]) for name, weight in whole.items())
