"""What can be read off from states: planted labels and no others, and the states of words."""

import pytest
import torch

from seqattn.extras.explain.probes import (
    Labels,
    WordPieces,
    nearest_words,
    uniform_attention,
    word_states,
)
from seqattn.tokens import EOS
from tests.builders import load_variant, make_transformer
from tests.models.recurrents import make_recurrent

SENTENCES = [
    WordPieces(["ab", "c", "de"], [4, 5, 6, 7, 8, EOS], [0, 0, 1, None, 2, None]),
    WordPieces(["c"], [6, EOS], [0, None]),
]


def planted(seed=0, sentences=120, noise=0.0):
    """States of 8 numbers, sentences of 5 words, and labels by their largest of three sums."""
    draws = torch.Generator().manual_seed(seed)
    states = torch.randn(sentences * 5, 8, generator=draws)
    scores = states @ torch.randn(8, 3, generator=draws) + torch.tensor([0.5, 0.0, -0.5])
    labels = [f"L{one}" for one in scores.argmax(dim=1).tolist()]
    forms = [f"w{one}" for one in torch.randint(40, (len(labels),), generator=draws).tolist()]
    rows = [slice(5 * n, 5 * n + 5) for n in range(sentences)]
    return states, Labels.of([labels[r] for r in rows], [forms[r] for r in rows], seed)


def test_a_planted_linear_label_is_found_and_random_ones_are_not():
    states, labels = planted()
    assert labels.accuracy(states) > 0.95
    held = labels.control[~labels.learnt]
    usual = float((held == labels.control[labels.learnt].mode().values).double().mean())
    assert labels.accuracy(states, control=True) < usual + 0.05
    others, _ = planted(seed=1)
    assert labels.accuracy(others) < labels.majority + 0.05


def test_control_labels_are_of_word_forms_and_can_be_learnt_by_heart():
    _, labels = planted()
    by_form = {}
    for form, label in zip(labels.forms, labels.control.tolist(), strict=True):
        assert by_form.setdefault(form, label) == label
    assert len(set(by_form.values())) == 3
    kinds = sorted(by_form)
    states = torch.eye(len(kinds))[[kinds.index(form) for form in labels.forms]]
    assert labels.accuracy(states, control=True) > 0.95


def test_baselines_are_what_counting_gives():
    words = [["a", "b"], ["a", "c"], ["a", "b"], ["b", "c"], ["a", "d"]]
    tags = [["X", "Y"], ["X", "X"], ["Y", "Y"], ["Y", "X"], ["X", "Y"]]
    labels = Labels.of(tags, words, 0)
    assert labels.learnt.tolist() == [True] * 8 + [False] * 2
    # learnt: X 4 times, Y 4 times, the first of which is X; a is X, d was never seen
    assert labels.majority == 0.5
    assert labels.by_form == 0.5


def test_the_nearest_words_are_those_of_the_largest_cosine():
    states = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 3.0], [-1.0, 0.0]])
    found = nearest_words(states, 0, 9)
    assert [word for word, _ in found] == [1, 2, 3]
    assert [cosine for _, cosine in found] == pytest.approx([2 / 4.01**0.5, 0, -1])


@torch.no_grad()
def test_a_word_has_the_mean_of_its_pieces_in_every_layer():
    model = make_transformer()
    found = word_states(model, SENTENCES)
    assert list(found) == ["embedding", "layer 1", "layer 2"]
    ids = torch.tensor([SENTENCES[0].ids])
    outputs = model.encode(ids).outputs[0]
    expected = torch.stack([outputs[:2].mean(dim=0), outputs[2], outputs[4]])
    torch.testing.assert_close(found["layer 2"][:3], expected)
    torch.testing.assert_close(found["embedding"][2], model.source_embedding(ids)[0, 4])
    assert found["layer 1"].shape == (4, 24)
    assert not torch.allclose(found["layer 1"][1], found["layer 1"][3])  # c, elsewhere
    torch.testing.assert_close(found["embedding"][1], found["embedding"][3])


def test_a_recurrent_encoder_has_its_embedding_and_its_outputs():
    assert list(word_states(make_recurrent("luong_general"), SENTENCES)) == ["embedding", "encoder"]


def test_uniform_attention_moves_states_and_is_had_where_all_of_the_encoder_has_weights():
    model = make_transformer()
    plain, even = word_states(model, SENTENCES), uniform_attention(model)
    with even:
        moved = word_states(model, SENTENCES)
    assert torch.equal(plain["embedding"], moved["embedding"])
    assert not torch.allclose(plain["layer 1"], moved["layer 1"], atol=1e-3)
    assert uniform_attention(make_transformer(load_variant("xca"))) is None
    assert uniform_attention(make_recurrent("bahdanau")) is None
