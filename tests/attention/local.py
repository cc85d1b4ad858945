"""An independent reference of attention over a set of keys per query, spelled out row by row."""

import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.masks import Mask, positions_of
from seqattn.positions import Position, RotaryPosition, Stack
from tests.builders import HEAD_DIM, HEADS
from tests.tolerance import close

NOWHERE = Position(Stack(HEADS * HEAD_DIM, HEADS))
ROPE = RotaryPosition(Stack(HEADS * HEAD_DIM, HEADS, bidirectional=False))


class Leaning(Position):
    """Adds to the scores and to the values, by content and distance, and has its own scale."""

    hooks = frozenset({"score_term", "value_term"})

    def score_term(self, q, k, q_positions, k_positions):
        groups = q.shape[1] // k.shape[1]
        content = q[..., :1] + k.repeat_interleave(groups, 1)[..., :1].mT
        return content * 0.5 - 0.2 * self.distance(q_positions, k_positions)

    def value_term(self, weights, q_positions, k_positions):
        moved = weights * self.distance(q_positions, k_positions)
        return moved.sum(-1, keepdim=True).expand(*weights.shape[:3], HEAD_DIM)

    def score_scale(self, head_dim):
        return 0.3

    @staticmethod
    def distance(q_positions, k_positions):
        distance = q_positions[..., :, None] - k_positions[..., None, :]
        return distance if distance.dim() == 2 else distance[:, None]


class LeaningScores(Leaning):
    hooks = frozenset({"score_term"})

    def value_term(self, weights, q_positions, k_positions):
        return None


LEANING = Leaning(Stack(HEADS * HEAD_DIM, HEADS))
LEANING_SCORES = LeaningScores(Stack(HEADS * HEAD_DIM, HEADS))
SCHEMES = [NOWHERE, ROPE, LEANING, LEANING_SCORES]


def inputs(length, groups=2, rows=2, dtype=torch.float32):
    shapes = [(rows, heads, length, HEAD_DIM) for heads in (HEADS, groups, groups)]
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]


def run(kernel, tensors, mask, position=NOWHERE, cache=None):
    q, k, v = tensors
    return kernel(q, KeysValues(k, v), mask, position, cache).context


def plain(length, causal=True, real=None, extra=None):
    places = torch.arange(length) if real is None else positions_of(real)
    return Mask(places, places, real, causal, extra)


def spelled_out(tensors, seen, position=NOWHERE, place=lambda i, j: i):
    """The context and the weights of each query, one at a time in float64.

    `seen(i)` lists the keys of query i in order; `place(i, j)` is where i stands towards key j.
    """
    q, k, v = (x.double() for x in tensors)
    rows, heads, length, width = q.shape
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
    contexts, weights = [], torch.zeros(rows, heads, length, length, dtype=torch.float64)
    for i in range(length):
        keys = seen(i)
        if not keys:
            contexts.append(torch.zeros(rows, heads, width, dtype=torch.float64))
            continue
        scores = []
        for j in keys:
            at, there = torch.tensor([place(i, j)]), torch.tensor([j])
            one, other = position.rotate(q[:, :, i, None], at), k[:, :, j, None]
            other = position.rotate(other, there)
            score = (one * other).sum(-1) * position.score_scale(width)
            term = position.score_term(one, other, at, there)
            scores.append(score if term is None else score + term[..., 0])
        power = torch.cat(scores, dim=2).exp()
        row = power / power.sum(-1, keepdim=True)
        context = (row[..., None] * v[:, :, keys]).sum(2)
        for column, j in enumerate(keys):
            at, there = torch.tensor([place(i, j)]), torch.tensor([j])
            term = position.value_term(row[..., None, column, None], at, there)
            context = context if term is None else context + term[:, :, 0]
        contexts.append(context)
        weights[:, :, i, keys] = row.detach()
    return torch.stack(contexts, dim=2), weights


def assert_equal_in_value_and_gradient(got, expected, tensors):
    close(got.double(), expected)
    upstream = torch.randn_like(got)
    ours = torch.autograd.grad((got * upstream).sum(), tensors, retain_graph=True)
    theirs = torch.autograd.grad((expected * upstream).sum(), tensors, retain_graph=True)
    for one, other in zip(ours, theirs, strict=True):
        assert (other != 0).any()
        close(one, other, bound=5e-5)


def decoded(kernel, tensors, cuts, position=NOWHERE, cache=None):
    """The context of all tokens, through the cache in pieces."""
    cache = kernel.make_cache(1) if cache is None else cache
    places = torch.arange(sum(cuts))
    steps, start = [], 0
    for count in cuts:
        mask = Mask(places[start : start + count], places[: start + count], causal=True)
        piece = [x[:, :, start : start + count] for x in tensors]
        steps.append(run(kernel, piece, mask, position, cache))
        start += count
    return torch.cat(steps, dim=2)
