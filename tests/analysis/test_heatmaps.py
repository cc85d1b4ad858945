"""Heatmaps show the true weights under the tokens they belong to, and words are aligned by them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqattn.analysis import capture
from seqattn.analysis.heatmaps import Sentence, align, attention_heatmaps, question_heatmap
from tests.analysis.figures import ticks, visible
from tests.builders import make_transformer
from tests.models.spans import inputs, make_recurrent, make_transformer_reader

QUERIES = ["▁Ein", "▁Hund", "</s>"]
KEYS = ["▁A", "▁d", "og", "▁", "</s>"]
SOURCE, TARGET = Sentence([4, 5, 6, 7, 3], KEYS), Sentence([8, 9, 3], QUERIES)


def test_there_are_three_views_of_every_layer():
    model = make_transformer(layers=(3, 2))
    figures = attention_heatmaps(model, SOURCE, TARGET).figures
    assert list(figures) == ["cross", "encoder", "decoder"]
    shown = {view: visible(figure) for view, figure in figures.items()}
    assert {view: len(panels) for view, panels in shown.items()} == {
        "cross": 2,
        "encoder": 3,
        "decoder": 2,
    }
    keys, queries = ["A", "d", "og", "␣", "</s>"], ["Ein", "Hund", "</s>"]
    assert all(ticks(axis) == (keys, queries) for axis in shown["cross"])
    assert all(ticks(axis) == (keys, keys) for axis in shown["encoder"])
    read = ["<s>", "Ein", "Hund"]  # the token of a row was predicted after reading these
    assert all(ticks(axis) == (read, queries) for axis in shown["decoder"])


def test_heatmaps_show_the_weights_of_the_model_that_reads_begin_and_predicts_the_target():
    model = make_transformer()
    figures = attention_heatmaps(model, SOURCE, TARGET).figures
    with torch.no_grad(), capture(model) as maps:
        model(torch.tensor([[4, 5, 6, 7, 3]]), torch.tensor([[2, 8, 9]]))
    for view, slot in (("cross", "cross_attention"), ("decoder", "self_attention")):
        for layer, axis in enumerate(visible(figures[view])):
            weights = maps[f"decoder.layers.{layer}.{slot}"][0][0].mean(0)
            np.testing.assert_allclose(axis.images[0].get_array(), weights.numpy(), atol=1e-6)


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (3, 1)])
def test_the_alignment_is_that_of_the_last_layer_but_one_or_of_the_only_one(layers, chosen):
    model = make_transformer(layers=(1, layers))
    found = attention_heatmaps(model, SOURCE, TARGET, only=())
    with torch.no_grad(), capture(model) as maps:
        model(torch.tensor([SOURCE.ids]), torch.tensor([[2, 8, 9]]))
    weights = maps[f"decoder.layers.{chosen}.cross_attention"][0][0].mean(0)
    assert found == ({}, align(weights, KEYS, QUERIES))


@pytest.mark.parametrize("most", [3, 40])
@pytest.mark.parametrize("make", [make_recurrent, make_transformer_reader])
def test_each_square_of_a_questions_heatmap_stands_under_its_own_two_tokens(make, most):
    model, context_ids = make(), [4, 5, 6, 7, 8, 9, 10, 4]
    batch = inputs([[9, 8, 3]], [context_ids])
    context = Sentence(context_ids, [f"▁{place}" for place in range(8)])
    figure = question_heatmap(model, Sentence([9, 8, 3], QUERIES), context, batch, most)
    (panel,) = visible(figure)
    across, down = ticks(panel)
    assert across == ["Ein", "Hund", "</s>"]
    rows = [int(place) for place in down]
    assert len(rows) == min(most, 8)
    with torch.no_grad(), capture(model) as maps:
        start = model(batch).start
    assert int(start.argmax()) in rows
    weights = maps["question_attention"][0][0].mean(0)
    np.testing.assert_allclose(panel.images[0].get_array(), weights[rows], atol=1e-6)


def test_a_questions_heatmap_leaves_the_mode_and_needs_weights():
    question, context = Sentence([9, 3], KEYS[3:]), Sentence([4, 5, 6], KEYS[:3])
    batch = inputs([[9, 3]], [[4, 5, 6]])
    model = make_recurrent().train()
    assert question_heatmap(model, question, context, batch) is not None
    assert model.training
    kernel = model.question_attention.kernel
    kernel.abilities = replace(kernel.abilities, weights=False)
    assert question_heatmap(model, question, context, batch) is None


def test_pieces_of_a_word_are_weighed_together_and_the_end_is_no_word():
    source = ["▁the", "▁do", "g", "▁runs", "</s>"]
    target = ["▁Hun", "d", "▁rennt", "</s>"]
    weights = torch.tensor(
        [
            [0.35, 0.25, 0.25, 0.15, 0.00],  # the pieces of "dog" together outweigh "the"
            [0.30, 0.20, 0.20, 0.30, 0.00],
            [0.10, 0.05, 0.05, 0.30, 0.50],  # the end draws most, and is no word
            [0.00, 0.00, 0.00, 0.10, 0.90],
        ]
    )
    found = align(weights, source, target)
    assert found.source == ["the", "dog", "runs"]
    assert found.target == ["Hund", "rennt"]
    assert found.links == [1, 2]
    assert found.pharaoh() == "1-0 2-1"


def test_a_target_words_pieces_vote_by_their_mean():
    weights = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    assert align(weights, ["▁a", "▁b"], ["▁x", "y"]).links == [1]
    assert align(weights, ["▁a", "▁b"], ["▁x", "▁y"]).links == [0, 1]


def test_a_text_that_begins_within_a_word_still_has_it():
    found = align(torch.tensor([[1.0, 0.0]]), ["a", "▁b"], ["x"])
    assert (found.source, found.target, found.links) == (["a", "b"], ["x"], [0])
