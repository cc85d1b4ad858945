"""Given pairs are aligned as each alone, by the layer, head and step that a reading names."""

from dataclasses import replace

import pytest
import torch

from seqattn.analysis.forced_alignment import aligning_pairs, cross_attentions
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import AlignmentReading, WordAlignment, pharaoh
from seqattn.errors import UserError
from tests.builders import make_transformer
from tests.models.recurrents import make_recurrent

PAIRS = [
    Pair([4, 5, 6, 7, 3], [8, 9, 3]),
    Pair([5, 3], [7, 8, 9, 4, 3]),
    Pair([6, 7, 3], [9, 3]),
]
READINGS = [
    AlignmentReading(shifted, layer, head)
    for shifted in (False, True)
    for layer in (None, 0)
    for head in (None, 0)
]


@pytest.mark.parametrize("make", [make_transformer, make_recurrent])
def test_pairs_are_read_together_as_each_alone(make):
    model = make()
    names = cross_attentions(model)
    for pair, several in zip(PAIRS, aligning_pairs(model, PAIRS, READINGS)):
        maps = observed(model, pair)
        for reading, found in zip(READINGS, several, strict=True):
            layer = reading.layer_of(len(names))
            alone = reading.rows(maps[names[layer]][0][0])
            torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-4)


def test_a_shifted_reading_takes_the_step_that_reads_a_word():
    weights = torch.rand(2, 4, 3)
    plain, shifted = (AlignmentReading(one, head=1).rows(weights) for one in (False, True))
    torch.testing.assert_close(plain, weights[1])
    torch.testing.assert_close(shifted, weights[1][[1, 2, 3, 3]])


@pytest.mark.parametrize(
    ("reading", "line"),
    [
        (AlignmentReading(layer=2), r"alignment\.layer must be below 2, got 2"),
        (AlignmentReading(head=9), r"alignment\.head must be below 4, got 9"),
    ],
)
def test_a_layer_or_head_that_the_model_lacks_is_named(reading, line):
    with pytest.raises(UserError, match=line):
        aligning_pairs(make_transformer(layers=(1, 2)), PAIRS, [reading])


def test_a_model_without_weights_is_refused_in_words():
    model = make_transformer()
    for layer in model.decoder.layers:
        kernel = layer.cross_attention.kernel
        kernel.abilities = replace(kernel.abilities, weights=False)
    with pytest.raises(UserError, match="cross-attention of this model computes no weights"):
        aligning_pairs(model, PAIRS, [AlignmentReading()])


def test_parts_of_a_text_are_numbered_through():
    parts = [
        WordAlignment(["a", "b"], ["x"], [1]),
        WordAlignment([], ["y"], []),
        WordAlignment(["c"], ["z"], [0]),
    ]
    assert pharaoh(parts) == "1-0 2-2"


def test_alignments_of_parts_are_joined_with_links_for_every_word():
    parts = WordAlignment(["a", "b"], ["x"], [1]), WordAlignment(["c"], ["y", "z"], [])
    joined = WordAlignment.joined([*parts, WordAlignment.of_copy("4 2.")])
    assert joined.source == ["a", "b", "c", "4", "2."]
    assert joined.target == ["x", "y", "z", "4", "2."]
    assert joined.links == [1, 2, 2, 3, 4]
    assert WordAlignment.joined([parts[0], WordAlignment([], ["x"], [])]).links == []
