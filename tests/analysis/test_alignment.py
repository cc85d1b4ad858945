"""Word alignments that attention implies."""

import torch

from seqattn.analysis.heatmaps import align


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
