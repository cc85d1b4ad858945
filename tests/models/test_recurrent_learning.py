"""A tiny recurrent model of every attention learns sentences by heart, to copy and to reverse."""

import pytest
import torch

from seqattn.generation import Generator, GreedySearch
from seqattn.models.recurrent import RecurrentConfig
from seqattn.tokens import EOS
from tests.builders import load_choice
from tests.models.recurrents import ALIGNMENTS
from tests.models.test_learning import (
    TASKS,
    VOCABULARY,
    learned_by_heart,
    lessons,
    sentences,
    train,
)


def tiny(name, **options):
    torch.manual_seed(0)
    config = RecurrentConfig(dim=32, dropout=0.0, **options)
    return config.build(VOCABULARY, VOCABULARY, True, load_choice("attention", name))


def share_solved(model, task, words):
    found = Generator(model, GreedySearch()).generate([[*row, EOS] for row in words])
    right = sum(list(best.ids) == TASKS[task](row) for (best,), row in zip(found, words))
    return right / len(words)


@pytest.mark.parametrize(
    ("name", "task"),
    lessons([name for name in ALIGNMENTS if name != "none"], {}),
)
def test_a_tiny_model_learns_the_task_and_greedy_search_solves_unseen_sentences(name, task):
    model = tiny(name)
    train(model, TASKS[task], steps=400 if name == "bahdanau" else 800)
    words = sentences(200, torch.Generator().manual_seed(2))
    assert share_solved(model, task, words) >= 0.95


SHAPES = [{"cell": "gru"}, {"input_feeding": True, "order": "after"}, {"decoder_layers": 2}]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bahdanau", {}),
        ("luong_local_p", SHAPES[1]),
        *(pytest.param(n, {}, marks=pytest.mark.exhaustive) for n in ALIGNMENTS if n != "bahdanau"),
        *(pytest.param("luong_general", x, marks=pytest.mark.exhaustive) for x in SHAPES),
    ],
    ids=str,
)
def test_a_tiny_model_learns_a_few_sentences_by_heart(name, options):
    assert learned_by_heart(tiny(name, **options)) > 0.95


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_other_shapes_learn_to_reverse(options):
    model = tiny("luong_general", **options)
    train(model, TASKS["reverse"], steps=600)
    words = sentences(200, torch.Generator().manual_seed(2))
    assert share_solved(model, "reverse", words) >= 0.95


@pytest.mark.exhaustive
def test_one_vector_is_too_narrow_for_long_sentences_and_attention_is_not(monkeypatch):
    monkeypatch.setattr("tests.models.test_learning.LONGEST", 16)
    solved = {}
    for name in ("bahdanau", "none"):
        model = tiny(name)
        train(model, TASKS["copy"], steps=800)
        draw = torch.Generator().manual_seed(2)
        for length in (2, 6, 10, 16):
            words = torch.randint(4, VOCABULARY, (100, length), generator=draw).tolist()
            solved[name, length] = share_solved(model, "copy", words)
    print(solved)
    assert solved["bahdanau", 16] >= 0.8
    assert solved["none", 2] >= 0.9
    assert solved["none", 10] <= 0.2
    assert solved["none", 16] <= 0.05
