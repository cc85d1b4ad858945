"""Words by characters, and how a context and a question meet."""

import pytest
import torch

from seqattn.extras.answers.characters import CharacterCNN, at_words
from seqattn.extras.answers.trilinear import TrilinearMatch


@torch.no_grad()
def test_a_word_is_the_largest_features_of_its_runs_of_characters():
    torch.manual_seed(0)
    read = CharacterCNN(7, character_dim=3, window=5)
    words = [[5], [9, 9, 4, 8, 2, 511], [3, 1]]
    characters = torch.zeros(1, 4, 6, dtype=torch.long)
    for place, word in enumerate(words):
        characters[0, place, : len(word)] = torch.tensor(word)
    got = read(characters)[0]
    weight, bias = read.convolution.weight, read.convolution.bias  # (7, 3, 5)
    for place, word in enumerate(words):
        letters = [torch.zeros(3)] * 2 + [read.embedding.weight[c] for c in word]
        letters += [torch.zeros(3)] * 2
        runs = [
            sum(weight[:, :, k] @ letters[at + k] for k in range(5)) + bias
            for at in range(len(word))
        ]
        torch.testing.assert_close(got[place], torch.stack(runs).amax(0).clamp(min=0))
    assert not got[3].any()


@torch.no_grad()
def test_neither_padding_nor_other_words_change_a_word():
    torch.manual_seed(0)
    read = CharacterCNN(6)
    words = torch.randint(1, 512, (2, 3, 4))
    words[0, 1, 2:] = 0
    padded = torch.nn.functional.pad(words, (0, 5, 0, 2))
    torch.testing.assert_close(read(padded)[:, :3], read(words))
    torch.testing.assert_close(read(words[1:, 2:])[0, 0], read(words)[1, 2])


def test_tokens_have_the_vectors_of_their_own_rows_words():
    words = torch.arange(12.0).reshape(2, 3, 2)
    got = at_words(words, torch.tensor([[2, 0], [1, 1]]))
    assert got.tolist() == [[[4, 5], [0, 1]], [[8, 9], [8, 9]]]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bidaf", "qanet"])
def test_context_and_question_meet_as_in_the_paper(kind):
    torch.manual_seed(0)
    match = TrilinearMatch(6, kind)
    context, question = torch.randn(2, 5, 6), torch.randn(2, 4, 6)
    real, asking = (
        torch.arange(5) < torch.tensor([[3], [5]]),
        torch.arange(4) < torch.tensor([[4], [2]]),
    )
    got = match(context, question, real, asking)
    w = torch.cat((match.context.weight[0], match.question.weight[0], match.both))
    for row in range(2):
        c, q = context[row, real[row]], question[row, asking[row]]
        alike = torch.stack([torch.stack([w @ torch.cat((a, b, a * b)) for b in q]) for a in c])
        asked = alike.softmax(1) @ q
        if kind == "bidaf":
            back = (alike.amax(1).softmax(0) @ c).expand_as(c)
        else:
            back = alike.softmax(1) @ alike.softmax(0).T @ c
        want = torch.cat((c, asked, c * asked, c * back), dim=1)
        torch.testing.assert_close(got[row, real[row]], want)


@pytest.mark.parametrize("kind", ["bidaf", "qanet"])
def test_an_empty_question_or_context_gives_finite_gradients(kind):
    match = TrilinearMatch(4, kind)
    context, question = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 2, 4)
    real = torch.tensor([[True, True, False], [False] * 3])
    asking = torch.tensor([[False, False], [True, True]])
    match(context, question, real, asking).square().sum().backward()
    assert context.grad.isfinite().all()
