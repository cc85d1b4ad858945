"""Heatmaps show the true weights under the tokens they belong to, and words are aligned by them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqattn.analysis import capture
from seqattn.analysis.word_alignment import WordAlignment, align, aligning
from seqattn.extras.pictures.heatmaps import Sentence, attention_heatmaps
from tests.builders import make_transformer
from tests.extras.pictures.figures import ticks, visible

QUERIES = ["▁Ein", "▁Hund", "</s>"]
KEYS = ["▁A", "▁d", "og", "▁", "</s>"]
SOURCE, TARGET = Sentence([4, 5, 6, 7, 3], KEYS), Sentence([8, 9, 3], QUERIES)


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (2, 1), (3, 1), (6, 4)])
def test_words_are_aligned_by_the_last_layer_but_one_or_by_the_last_of_two(layers, chosen):
    weights = torch.rand(layers, 4, 2, 3)
    torch.testing.assert_close(aligning([*weights]), weights[chosen].mean(dim=0))


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
    keys, queries = ["A", "d", "‿og", "␣", "</s>"], ["Ein", "Hund", "</s>"]
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
            np.testing.assert_allclose(axis.images[0].get_array(), weights.numpy(), atol=1e-5)


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (3, 1)])
def test_the_alignment_is_that_of_the_last_layer_but_one_or_of_the_only_one(layers, chosen):
    model = make_transformer(layers=(1, layers))
    found = attention_heatmaps(model, SOURCE, TARGET, only=())
    with torch.no_grad(), capture(model) as maps:
        model(torch.tensor([SOURCE.ids]), torch.tensor([[2, 8, 9]]))
    weights = maps[f"decoder.layers.{chosen}.cross_attention"][0][0].mean(0)
    assert found == ({}, [], align(weights, KEYS, QUERIES))


def test_each_layers_heads_are_drawn_beside_each_other_where_asked():
    model = make_transformer(layers=(1, 2))
    figures = attention_heatmaps(model, SOURCE, TARGET, only=["cross"], heads=True).figures
    assert list(figures) == ["cross", "cross_heads_1", "cross_heads_2"]
    assert figures["cross_heads_2"].get_suptitle() == "cross attention, layer 2"
    with torch.no_grad(), capture(model) as maps:
        model(torch.tensor([SOURCE.ids]), torch.tensor([[2, 8, 9]]))
    panels = visible(figures["cross_heads_2"])
    heads = maps["decoder.layers.1.cross_attention"][0][0]
    assert [axis.get_title() for axis in panels] == [f"head {n + 1}" for n in range(len(heads))]
    for axis, weights in zip(panels, heads, strict=True):
        np.testing.assert_allclose(axis.images[0].get_array(), weights.numpy(), atol=1e-5)


def test_labels_are_cut_with_the_array():
    model = make_transformer()
    whole, cut = (
        attention_heatmaps(model, SOURCE, TARGET, most=most).figures for most in (None, 2)
    )
    assert ticks(visible(cut["cross"])[0]) == (["A", "d"], ["Ein", "Hund"])
    assert ticks(visible(cut["decoder"])[0]) == (["<s>", "Ein"], ["Ein", "Hund"])
    for view, figure in cut.items():
        shown, full = (visible(one)[0].images[0].get_array() for one in (figure, whole[view]))
        np.testing.assert_array_equal(shown, full[:2, :2])


def test_a_view_without_weights_is_named_and_layers_keep_their_numbers():
    model = make_transformer(layers=(2, 2))
    for layers, without in ((model.encoder.layers, 2), (model.decoder.layers, 1)):
        for layer in layers[:without]:
            kernel = layer.self_attention.kernel
            kernel.abilities = replace(kernel.abilities, weights=False)
    found = attention_heatmaps(model, SOURCE, TARGET)
    assert list(found.figures) == ["cross", "decoder"]
    assert found.without == ["encoder", "decoder"]
    assert [axis.get_title() for axis in visible(found.figures["decoder"])] == ["layer 2"]


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


def test_a_word_without_weight_on_any_word_aligns_as_the_word_before_it_or_to_the_last():
    source, target = ["▁a", "▁b", "▁c", "</s>"], ["▁x", "▁y", "▁z"]
    weights = torch.zeros(3, 4)
    weights[0, 1] = 1.0  # then the model passes the end of the source
    assert align(weights, source, target).links == [1, 1, 1]
    weights[1, 3] = 1.0  # or stands at its end
    assert align(weights, source, target).links == [1, 1, 1]
    assert align(torch.zeros(3, 4), source, target).links == [2, 2, 2]


def test_a_text_that_begins_within_a_word_still_has_it():
    found = align(torch.tensor([[1.0, 0.0]]), ["a", "▁b"], ["x"])
    assert (found.source, found.target, found.links) == (["a", "b"], ["x"], [0])


def test_spaces_alone_are_no_words_and_bytes_spell_theirs():
    pieces = ["▁", "▁a", "▁", "<0xE2>", "<0x98>", "<0x83>", "▁<b>", "</s>"]
    found = align(torch.eye(8), pieces, pieces)
    assert found.source == found.target == ["a", "☃", "<b>"]
    assert found.pharaoh() == "0-0 1-1 2-2"


def test_a_source_of_no_words_aligns_with_none():
    found = align(torch.ones(2, 1), ["</s>"], ["▁x", "</s>"])
    assert found == WordAlignment([], ["x"], [])
