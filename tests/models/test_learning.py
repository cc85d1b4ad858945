"""A tiny model of every attention learns a few sentences by heart, and to copy and to reverse."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.generation import Generator, GreedySearch
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import SinusoidalPosition
from seqattn.tokens import BOS, EOS, PAD
from tests.builders import (
    attention_choices,
    heads,
    load_choice,
    make_attention,
    own_choices,
    padded,
)

VOCABULARY, LONGEST, DIM = 12, 6, 32
BLOCKWISE = {"bigbird", "fixed", "strided"}
"""Kernels that fill up to whole blocks, which takes time; they learn by heart with small ones."""
TASKS = {"copy": lambda words: words, "reverse": lambda words: words[::-1]}


def sentences(count, draw):
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=draw).tolist()
    return [torch.randint(4, VOCABULARY, (n,), generator=draw).tolist() for n in lengths]


def tiny(factory):
    abilities = make_attention(factory, DIM).abilities
    torch.manual_seed(0)
    encoder = factory if abilities.fits("encoder") else heads()
    decoder = factory if abilities.fits("decoder") else heads()
    config = TransformerConfig(dim=DIM, ffn_dim=64, dropout=0.0)
    slots = Slots([encoder] * 2, [decoder], [heads()], SinusoidalPosition)
    return config.build(VOCABULARY, VOCABULARY, True, slots)


def train(model, task, steps=400, batch=48):
    draw = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.2)
    for _ in range(steps):
        words = sentences(batch, draw)
        source = padded([[*row, EOS] for row in words])
        target = padded([[BOS, *task(row), EOS] for row in words])
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def lessons(names, task_of):
    """Both tasks for each name; all but those that `task_of` gives a name are exhaustive."""
    for name in names:
        for task in sorted(TASKS):
            marks = () if task_of.get(name) == task else pytest.mark.exhaustive
            yield pytest.param(name, task, marks=marks, id=f"{name}-{task}")


def solved(model, task):
    """Share of unseen sentences that greedy search solves after training."""
    train(model, task)
    words = sentences(200, torch.Generator().manual_seed(2))
    outputs = Generator(model, GreedySearch()).generate([[*row, EOS] for row in words])
    right = sum(list(best.ids) == task(row) for (best,), row in zip(outputs, words))
    return right / len(words)


def learned_by_heart(model, steps=60):
    """Share of a few reversed sentences' tokens that a model gives after reading them often."""
    words = sentences(8, torch.Generator().manual_seed(3))
    source = padded([[*row, EOS] for row in words])
    target = padded([[BOS, *row[::-1], EOS] for row in words])
    gold, real = target[:, 1:], target[:, 1:] != PAD
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        scores = model(source, target[:, :-1]).log_softmax(dim=-1)
        loss = -scores.gather(2, gold[..., None])[real].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    right = model.eval()(source, target[:, :-1]).argmax(dim=2) == gold
    return float(right[real].float().mean())


def by_heart(names, tried):
    """Test parameters; gradients are checked elsewhere, so that few need to be learned by."""
    for name in names:
        marks = () if name in {*tried, *own_choices()} else pytest.mark.exhaustive
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", by_heart(attention_choices(), {"gqa", "moa", "linear", "lsh"}))
def test_a_tiny_model_learns_a_few_sentences_by_heart(name):
    small = name in BLOCKWISE
    assert learned_by_heart(tiny(load_choice("attention", name, small=small))) > 0.95


@pytest.mark.parametrize(("name", "task"), lessons(attention_choices(), {"mha": "reverse"}))
def test_a_tiny_model_learns_the_task_and_greedy_search_solves_unseen_sentences(name, task):
    assert solved(tiny(load_choice("attention", name)), TASKS[task]) >= 0.95
