"""Answers are the best spans of all windows: what looking at every span would find."""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch

from seqattn.errors import UserError
from seqattn.extras.answers.span_base import SpanModel, SpanScores
from seqattn.extras.answers.span_search import Answered, Answerer, SpanSearch

CONTEXT = "ab c  ab de f ab"
TOKENS = [(0, 1), (1, 2), (3, 3), (3, 4), (6, 8), (9, 10), (10, 11), (12, 13), (13, 13), (14, 16)]
"""Where tokens stand; two of them stand for nothing."""


class Windows(NamedTuple):
    """What the search reads: the ids of a context are the places of its tokens, from 1."""

    question: torch.Tensor
    context: torch.Tensor
    match: torch.Tensor
    begins: torch.Tensor
    ends: torch.Tensor
    offset: torch.Tensor
    index: torch.Tensor

    def to(self, device):
        return self


def windows_of(parts, rows=None, pad=0):
    """Windows of CONTEXT from pairs of start and stop."""
    width = max(stop - start for start, stop in parts) + pad
    places = torch.zeros(3, len(parts), width, dtype=torch.long)
    for row, (start, stop) in enumerate(parts):
        places[0, row, : stop - start] = torch.arange(start, stop) + 1
        places[1:, row, : stop - start] = torch.tensor(TOKENS[start:stop]).T
    question, match = torch.ones(len(parts), 2, dtype=torch.long), torch.zeros(len(parts), width, 4)
    index = torch.tensor(rows or [0] * len(parts))
    offset = torch.tensor([start for start, _ in parts])
    return Windows(question, places[0], match, *places[1:], offset, index)


class Table(SpanModel):
    """Random scores that differ by window, so that windows disagree about a token."""

    def __init__(self, seed=0, none=0.0):
        super().__init__()
        self.table = torch.nn.Parameter(
            torch.randn(2, 12, 12, generator=torch.Generator().manual_seed(seed))
        )
        self.none = none
        self.calls = 0

    def forward(self, batch):
        self.calls += 1
        scores = []
        for part in self.table:
            rows = [part[int(ids[0]) % 12][ids] for ids in batch.context]
            score = torch.stack(rows).masked_fill(batch.context == 0, -torch.inf)
            none = torch.stack([part[int(ids[0]) % 12, :1] for ids in batch.context]) + self.none
            scores.append(torch.cat((score, none), dim=1))
        return SpanScores(*scores)


def exhaustive(model, parts, search):
    """Every span of every window, looked at one by one."""
    best, nones = {}, []
    for start, stop in parts:
        first, last = (x[0].log_softmax(0).tolist() for x in model(windows_of([(start, stop)]))[:2])
        nones.append(first[-1] + last[-1])
        for i, j in itertools.product(range(stop - start), repeat=2):
            (b, b_end), (e, e_end) = TOKENS[start + i], TOKENS[start + j]
            if i <= j < i + search.max_answer and b < b_end and e < e_end:
                key = (b, e_end)
                best[key] = max(best.get(key, -math.inf), first[i] + last[j])
    everything = [*best.values(), min(nones)]
    total = math.log(sum(map(math.exp, everything)))
    found = {}
    for (begin, end), value in sorted(best.items(), key=lambda item: -item[1]):
        text = CONTEXT[begin:end]
        found.setdefault(text, (text, begin, end, math.exp(value - total)))
    return list(found.values())[: search.answers], math.exp(min(nones) - total)


def assert_same(got, wanted):
    answers, no_answer = wanted
    assert [tuple(answer)[:3] for answer in got.answers] == [answer[:3] for answer in answers]
    mine = [answer.probability for answer in got.answers]
    assert mine == pytest.approx([answer[3] for answer in answers], rel=1e-5)
    assert got.no_answer == pytest.approx(no_answer, rel=1e-5)


PARTS = {
    "one window": [(0, 10)],
    "windows that overlap": [(0, 5), (3, 8), (6, 10)],
    "windows that do not": [(0, 4), (4, 8), (8, 10)],
}


@torch.no_grad()
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("max_answer", [1, 3, 10, 30])
@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_looking_at_every_span(parts, max_answer, seed):
    model = Table(seed)
    for answers in (1, 4, 100):
        search = SpanSearch(max_answer, answers)
        answerer = Answerer(model, lambda *_: [windows_of(parts, pad=2)], search)
        assert_same(answerer.answer(["?"], [CONTEXT])[0], exhaustive(model, parts, search))


@pytest.mark.parametrize("max_answer", [3, 6])  # of spans of up to 4 tokens
def test_spans_that_are_scored_as_wholes_have_their_own_probabilities(max_answer):
    windows, source = windows_of([(0, 10)], pad=1), torch.Generator().manual_seed(0)
    start, end = torch.randn(2, 1, 12, generator=source)
    start[0, 10] = end[0, 10] = -torch.inf  # padding
    pair = torch.randn(1, 11, 4, generator=source)
    (read,) = SpanSearch(max_answer).read(windows, SpanScores(start, end, pair))
    scored = {
        (i, j): math.exp(start[0, i] + end[0, j] + pair[0, i, j - i])
        for i, j in itertools.product(range(10), repeat=2)
        if i <= j < i + 4
    }
    none = math.exp(start[0, 11] + end[0, 11])
    total = sum(scored.values()) + none
    assert math.exp(read.none) == pytest.approx(none / total)
    for i, more in itertools.product(range(11), range(max_answer)):
        j = i + more
        blank = any(TOKENS[at][0] == TOKENS[at][1] for at in (i, j) if at < 10)
        want = 0 if blank else scored.get((i, j), 0) / total
        assert math.exp(read.spans[i, more]) == pytest.approx(want, rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_the_answer_of_the_best_expected_f1_is_that_of_looking_at_every_span(seed):
    model, search = Table(seed), SpanSearch(max_answer=5, expected_f1=True, answers=60)
    (read,) = search.read(windows_of([(0, 10)]), model(windows_of([(0, 10)])))
    found = {
        (i, i + more): math.exp(read.spans[i, more])
        for i, more in itertools.product(range(10), range(5))
        if read.spans[i, more] > -math.inf
    }
    assert len(found) < 60

    def expected(span):
        tokens = set(range(span[0], span[1] + 1))
        total = 0.0
        for (i, j), p in found.items():
            other = set(range(i, j + 1))
            total += p * 2 * len(tokens & other) / (len(tokens) + len(other))
        return total

    best = sorted(found, key=expected, reverse=True)
    texts = dict.fromkeys(CONTEXT[TOKENS[i][0] : TOKENS[j][1]] for i, j in best)
    answered = search.choose([read], CONTEXT)
    assert [answer.text for answer in answered.answers] == list(texts)
    likeliest = replace(search, expected_f1=False).choose([read], CONTEXT)
    assert {one.text for one in likeliest.answers} == set(texts)
    assert answered.no_answer == likeliest.no_answer


@torch.no_grad()
def test_questions_keep_their_order_wherever_batches_are_cut():
    model, search = Table(2), SpanSearch(5, 3)
    cut = [(0, 5), (3, 8), (6, 10)]
    batches = [
        windows_of([cut[0], cut[1]], [2, 2]),
        windows_of([cut[2], (0, 9)], [2, 0]),
        windows_of([(2, 7)], [3]),
    ]
    found = Answerer(model, lambda *_: batches, search).answer(["?"] * 4, [CONTEXT] * 4)
    for number, parts in ((2, cut), (0, [(0, 9)]), (3, [(2, 7)])):
        assert_same(found[number], exhaustive(model, parts, search))
    assert found[1] == Answered([], 1.0)


@torch.no_grad()
def test_a_threshold_withholds_answers_and_leaves_the_probability():
    model = Table(3, none=1.0)
    read = lambda *_: [windows_of([(0, 10)])]  # noqa: E731
    said = Answerer(model, read, SpanSearch()).answer(["?"], [CONTEXT])[0]
    assert 0 < said.no_answer < 1
    below = Answerer(model, read, SpanSearch(threshold=said.no_answer * 0.99))
    assert below.answer(["?"], [CONTEXT])[0] == Answered([], said.no_answer)
    above = Answerer(model, read, SpanSearch(threshold=said.no_answer * 1.01))
    assert above.answer(["?"], [CONTEXT])[0] == said


@torch.no_grad()
def test_an_empty_context_has_no_answer_for_certain():
    empty = windows_of([(2, 3)])  # a token that stands for nothing
    found = Answerer(Table(), lambda *_: [empty], SpanSearch()).answer(["?"], ["  "])
    assert found == [Answered([], 1.0)]


def test_what_the_model_cannot_read_is_refused():
    model = Table()
    model.max_source_length = 9
    with pytest.raises(UserError, match="has 10 tokens, but this model reads at most 9; lower"):
        Answerer(model, lambda *_: [windows_of([(0, 10)])], SpanSearch()).answer(["?"], [CONTEXT])
