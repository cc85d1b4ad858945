"""Greedy search against an argmax loop through full, uncached passes."""

import pytest
import torch

from seqattn.generation import Generator, GreedySearch, LengthLimit
from seqattn.tokens import BOS, EOS, PAD
from tests.builders import HEADS, POSITIONS, heads, make_transformer
from tests.generation.table_model import TableModel

SOURCES = [[4, 5, 3], [5, 3], [4, 9, 10, 5, 5, 3], [7, 8, 4, 3]]


@torch.inference_mode()
def argmax_loop(model, source, most, minimum):
    ids, total = [], 0.0
    while len(ids) < most:
        scores = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1].log_softmax(0)
        allowed = [
            token
            for token in range(len(scores))
            if token != PAD and (token != EOS or len(ids) >= minimum)
        ]
        best = max(allowed, key=lambda token: scores[token].item())
        total += scores[best].item()
        if best == EOS:
            return tuple(ids), total, len(ids) + 1
        ids.append(best)
    return tuple(ids), total, len(ids)


@pytest.mark.parametrize("scheme", sorted(POSITIONS))
@pytest.mark.parametrize("minimum", [0, 4])
def test_it_equals_an_argmax_loop_through_full_passes(scheme, minimum):
    model = make_transformer(heads(HEADS, 2), POSITIONS[scheme])
    limit = LengthLimit(1.5, 3, minimum)
    for source, (best,) in zip(SOURCES, Generator(model, GreedySearch(limit)).generate(SOURCES)):
        most = int(len(source) * 1.5) + 3
        ids, total, length = argmax_loop(model, source, most, minimum)
        assert best.ids == ids
        assert best.log_probability == pytest.approx(total, abs=1e-4)
        assert best.score == pytest.approx(total / length, abs=1e-4)


def test_the_end_is_left_out_of_the_tokens_and_counted_in_the_score():
    table = {(): [0, 0, 0, 0, 3.0], (4,): [0, 0, 0, 3.0, 0]}
    model = TableModel(5, lambda source, prefix: table[prefix])
    ((best,),) = Generator(model, GreedySearch()).generate([[4, 3]])
    step = torch.tensor(3.0) - torch.tensor([0, 0, 0, 0, 3.0]).logsumexp(0)
    assert best.ids == (4,)
    assert best.log_probability == pytest.approx(2 * step.item(), abs=1e-5)
    assert best.score == pytest.approx(step.item(), abs=1e-5)


def test_padding_is_never_generated_and_its_probability_is_not_given_to_others():
    model = TableModel(5, lambda source, prefix: [9.0, 0, 0, 0, 1.0])
    ((best,),) = Generator(model, GreedySearch(LengthLimit(0, 1))).generate([[4, 3]])
    expected = torch.tensor([9.0, 0, 0, 0, 1.0]).log_softmax(0)[4].item()
    assert best.ids == (4,)
    assert best.log_probability == pytest.approx(expected, abs=1e-5)
