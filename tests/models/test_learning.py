"""A tiny model of every attention learns to copy and to reverse."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.generation import Generator, GreedySearch
from seqattn.models.base import BOS, EOS, PAD
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import SinusoidalPosition
from tests.builders import attention_choices, heads, load_choice, make_attention, padded

VOCABULARY, LONGEST, DIM = 12, 6, 32
QUICK = {"mha"}
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


def lessons(names, quick):
    """Every task for the quick ones; the others reverse in the slow run, copy in the exhaustive."""
    for name in names:
        for task in sorted(TASKS):
            late = pytest.mark.slow if task == "reverse" else pytest.mark.exhaustive
            marks = () if name in quick else late
            yield pytest.param(name, task, marks=marks, id=f"{name}-{task}")


@pytest.mark.parametrize(("name", "task"), lessons(attention_choices(), QUICK))
def test_a_tiny_model_learns_the_task_and_greedy_search_solves_unseen_sentences(name, task):
    model = tiny(load_choice("attention", name))
    train(model, TASKS[task])
    words = sentences(200, torch.Generator().manual_seed(2))
    found = Generator(model, GreedySearch()).generate([[*row, EOS] for row in words])
    right = sum(list(best.ids) == TASKS[task](row) for (best,), row in zip(found, words))
    assert right >= 0.95 * len(words)
