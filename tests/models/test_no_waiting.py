"""No step of training reads a number back, nor does one of decoding.

The meta device has shapes and no numbers: what asks it for one fails, as it would wait on a GPU.
So does a copy from the host that waits for the device.
"""

from contextlib import nullcontext
from functools import partial

import pytest
import torch

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.fixed import FixedKernel
from seqattn.attention.kernels.strided import StridedKernel
from seqattn.attention.masks import padded_right
from seqattn.data.batch import collate
from seqattn.generation import Generator, GreedySearch, LengthLimit, Sampling
from seqattn.generation.beam import candidates
from seqattn.generation.generator import Batch
from seqattn.generation.processors import NoRepeatNgram
from seqattn.generation.stepper import Stepper
from seqattn.ops.cross_entropy import LossTerms
from seqattn.tokens import BOS
from seqattn.training.forcing import TeacherForcing
from seqattn.training.optim import adamw
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from seqattn.training.tasks.settings import Optimization
from tests.builders import (
    attention_variants,
    fitting,
    load_choice,
    load_variant,
    make_transformer,
    position_choices,
)
from tests.models import recurrents
from tests.operations import operations

SOURCES = [[4, 5, 6, 7, 8, 9, 3], [5, 3], [6, 7, 3]]
TARGETS = [[5, 6, 3], [4, 5, 6, 7, 3], [3]]
CHOICES = {
    **{name: lambda n=name: {"attention": load_variant(n)} for name in attention_variants()},
    **{
        f"position {name}": lambda n=name: {"position": load_choice("position", n)}
        for name in position_choices()
    },
    "copies": lambda: {"copy": True},
    "recomputes": lambda: {
        "attention": load_variant("bigbird, small"), "checkpoint_activations": True,
    },
}  # fmt: skip
ENCODERS = [name for name in attention_variants() if name not in fitting("decoder")]
MODELS = {
    **{
        name: lambda o=options: make_transformer(**o(), dropout=0.1)
        for name, options in CHOICES.items()
    },
    **{
        f"recurrent {name}": lambda n=name: recurrents.make_recurrent(n, dropout=0.1)
        for name in recurrents.ALIGNMENTS
    },
    "recurrent copies": lambda: recurrents.make_recurrent(copy=True),
}


@pytest.fixture
def meta(monkeypatch):
    """That device, on which PyTorch knows of no autocast to be asked about."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    monkeypatch.setattr(torch, "autocast", lambda *device, **options: nullcontext())
    return torch.device("meta")


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_reads_no_number_back(meta, name):
    batch = collate(SOURCES, TARGETS, [0, 1, 2]).to(meta)
    model = MODELS[name]().to(meta).train()
    with padded_right(), operations():
        sides = (batch.source, batch.target_input, batch.target_output)
        loss = model.loss(*sides, LossTerms(label_smoothing=0.1), tokens=batch.target_tokens)
    loss.smoothed.backward()
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    torch.optim.AdamW(parameters).step()


def test_nor_does_one_that_reads_its_own_words(meta):
    forcing = TeacherForcing("linear", start=0.9)
    optimization = Optimization(adamw, constant(0), teacher_forcing=forcing)
    task = Seq2SeqTask(recurrents.make_recurrent(dropout=0.1).to(meta).train(), optimization)
    batch = collate(SOURCES, TARGETS, [0, 1, 2]).to(meta)
    with padded_right(), operations():
        found = task.training_loss(batch)
    assert "teacher_forcing" in found.means


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "beams"),
    [
        *((name, 2) for name in MODELS if name not in ENCODERS),
        *((name, 1) for name in ("mha", "linear", "streaming, small", "recurrent bahdanau")),
    ],
)
def test_nor_does_a_decoding_step(meta, name, beams):
    """Searches alone read: which sentences go on, or a beam search its candidates."""
    search = GreedySearch(LengthLimit(minimum=2), processors=[NoRepeatNgram(2)])
    model = MODELS[name]().to(meta).eval()
    ids = torch.full((3, beams), BOS, device=meta)
    sources = collate(SOURCES, TARGETS, [0, 1, 2]).to(meta).source
    kept = torch.zeros(2, dtype=torch.long, device=meta)
    with padded_right(), operations():
        memory = model.encode(sources)
        stepper = Stepper(search, model, memory, beams)
        for _ in range(3):
            candidates(stepper.step(ids), torch.zeros(len(ids), beams, device=meta))
            stepper.reorder(ids)
        stepper.keep(kept)
        stepper.step(ids[kept])


@torch.no_grad()
@pytest.mark.parametrize(
    "kernel", [partial(StridedKernel, stride=8), partial(FixedKernel, stride=8, summary=1)]
)
def test_nor_does_a_step_that_reads_the_columns_of_a_pattern_alone(meta, kernel):
    attention = partial(MultiHeadAttention, num_heads=4, num_kv_heads=4, kernel=kernel)
    model = make_transformer(attention=attention).to(meta).eval()
    ids = torch.full((3, 1), BOS, device=meta)
    sources = torch.full((3, 5), 4, device=meta)
    with padded_right(), operations() as names:
        state = model.start(model.encode(sources))
        for _ in range(40):
            model.log_probabilities(ids, state)
    assert names["index_select"]  # by which the columns are taken


class Encoded(GreedySearch):
    """Search that ends as soon as the sources are encoded."""

    def search(self, model, memory, numbers):
        return [[] for _ in numbers]


def test_nor_do_sources_and_random_numbers_wait_on_their_way_to_the_device(meta, monkeypatch):
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # so that copies are counted
    generator = Generator(make_transformer().to(meta), Encoded())
    with operations(), generator.ready() as search:
        assert search(Batch(SOURCES, [0, 1, 2])) == [[], [], []]
        assert Sampling()._uniform([0, 1, 2], 5, 2, meta).shape == (3, 2, 5)
