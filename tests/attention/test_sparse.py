"""What strided, fixed and BigBird attention share, against dense attention over their patterns."""

from functools import cache, partial

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.bigbird import BigBirdKernel
from seqattn.attention.kernels.fixed import FixedKernel
from seqattn.attention.kernels.shared import blockwise
from seqattn.attention.kernels.strided import FactorizedKernel, StridedKernel
from seqattn.attention.masks import Mask
from seqattn.positions import Position, Stack
from tests.builders import causal_mask, full_mask
from tests.operations import Largest

B, H, DH = 2, 4, 6
NOWHERE = Position(Stack(H * DH, H))
KERNELS = {
    "strided": partial(StridedKernel, stride=4),
    "strided by one": partial(StridedKernel, stride=1),
    "strided, split": partial(StridedKernel, stride=3, split_heads=True),
    "fixed": partial(FixedKernel, stride=4, summary=1),
    "fixed, split": partial(FixedKernel, stride=5, summary=2, split_heads=True),
    "fixed and strided": partial(FixedKernel, stride=4, summary=2, strided_heads=True),
    "bigbird": partial(BigBirdKernel, block_size=3, random_blocks=1, seed=5),
    "bigbird, no globals": partial(
        BigBirdKernel, block_size=2, window_blocks=1, global_blocks=0, random_blocks=2
    ),
    "bigbird, even window": partial(
        BigBirdKernel, block_size=2, window_blocks=2, global_blocks=2, random_blocks=0
    ),
}
DECODERS = [name for name in KERNELS if "bigbird" not in name]
WAYS = [(name, False) for name in KERNELS] + [(name, True) for name in DECODERS]


class PerHead(Position):
    """Another slope for each head, on scores and on values, and a scale of its own."""

    hooks = frozenset({"score_term", "value_term"})

    def slopes(self, x):
        return torch.linspace(0.1, 0.9, H, dtype=x.dtype)[:, None, None]

    def distance(self, q_positions, k_positions):
        return (q_positions[..., :, None] - k_positions[..., None, :])[..., None, :, :]

    def score_term(self, q, k, q_positions, k_positions):
        return -self.slopes(q) * self.distance(q_positions, k_positions).abs()

    def value_term(self, weights, q_positions, k_positions):
        tilt = self.slopes(weights) * self.distance(q_positions, k_positions)
        return (weights * tilt).sum(-1, keepdim=True) * torch.arange(1, DH + 1)

    def score_scale(self, head_dim):
        return 0.7


class SlopedScores(PerHead):
    hooks = frozenset({"score_term"})

    def value_term(self, weights, q_positions, k_positions):
        return None


@pytest.fixture(autouse=True)
def blocks_at_any_length(monkeypatch):
    monkeypatch.setattr(FactorizedKernel, "dense_up_to", 0)


def make(name, heads=H, groups=H, dropout=0.0):
    return KERNELS[name](HeadShape(heads, groups, DH, dropout)).eval()


def belongs(name, kernel, head, i, j, length):
    """Child's sets, written out; BigBird's blocks from its table. No causality."""
    if isinstance(kernel, BigBirdKernel):
        size, edge = kernel.block_size, kernel.global_blocks
        return i // size < edge or j // size in blocks_of(name, length)[i // size]
    size = kernel.stride
    heads = kernel.num_heads // kernel.num_kv_heads  # of a group: an odd number stays together
    odd = head // (heads if heads % 2 else 1) % 2
    near, stride = abs(i - j) <= size, abs(i - j) % size == 0
    if isinstance(kernel, StridedKernel):
        return (stride if odd else near) if "split" in name else near or stride
    block, summary = i // size == j // size, j % size in range(size - kernel.summary, size)
    if "split" in name:
        return summary if odd else block
    return near or stride if odd and "strided" in name else block or summary


@cache
def blocks_of(name, length):
    """BigBird's table for one sentence, a list of key blocks for each query block."""
    kernel = make(name)
    return kernel.table(torch.tensor([length]), -(-length // kernel.block_size))[0].tolist()


def allowed_of(name, kernel, real, causal):
    """(B, H, T, T) bool by loops; positions count real tokens, rows of padding are empty."""
    batch, length = real.shape
    allowed = torch.zeros(batch, kernel.num_heads, length, length, dtype=torch.bool)
    for b in range(batch):
        slots = real[b].nonzero().flatten().tolist()
        for i, at in enumerate(slots):
            for j, to in enumerate(slots[: i + 1] if causal else slots):
                for h in range(kernel.num_heads):
                    allowed[b, h, at, to] = belongs(name, kernel, h, i, j, len(slots))
    return allowed


def dense(q, k, v, allowed, position=NOWHERE, places=None):
    """Masked attention written out, keys repeated for their heads; weights and context."""
    places = torch.arange(q.shape[2]) if places is None else places
    size = q.shape[1] // k.shape[1]
    wide, values = k.repeat_interleave(size, dim=1), v.repeat_interleave(size, dim=1)
    scores = q @ wide.transpose(2, 3) * position.score_scale(DH)
    term = position.score_term(q, k, places, places)
    scores = scores if term is None else scores + term
    scores = scores - scores.detach().masked_fill(~allowed, -1e9).amax(-1, keepdim=True)
    powers = scores.clamp(max=0.0).exp() * allowed
    weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-300)
    term = position.value_term(weights, places, places)
    return weights, weights @ values if term is None else weights @ values + term


def inputs(length, groups=H, heads=H, batch=B, scale=1.0):
    torch.manual_seed(length)
    options = {"dtype": torch.float64, "requires_grad": True}
    q = torch.randn(batch, heads, length, DH, **options)
    k, v = (torch.randn(batch, groups, length, DH, **options) for _ in range(2))
    if scale == 1:
        return q, k, v
    return ((q * scale).detach().requires_grad_(), k, v)


def agree(kernel, tensors, mask, allowed, real, position=NOWHERE):
    """Context and gradients of the real positions equal those of dense masked attention."""
    q, k, v = tensors
    places = mask.query_positions
    context = kernel(q, KeysValues(k, v), mask, position).context
    _, expected = dense(q, k, v, allowed, position, places)
    seen = real[:, None, :, None]
    torch.testing.assert_close(context * seen, expected * seen, atol=1e-10, rtol=1e-10)
    upstream = torch.randn_like(context) * seen
    ours = torch.autograd.grad(context, tensors, upstream)
    theirs = torch.autograd.grad(expected, tensors, upstream)
    for got, wanted in zip(ours, theirs):
        torch.testing.assert_close(got, wanted, atol=1e-10, rtol=1e-10)


def masked(real, causal):
    return causal_mask(real) if causal else full_mask(real)


CASES = {
    **{f"{length} tokens": {"length": length} for length in (1, 3, 8, 26)},
    "padding before, after and between": {
        "length": 17,
        "hidden": [range(6), range(11, 17), [0, 4, 16]],
    },
    **{
        f"{of} heads in {n} groups": {"heads": of, "groups": n}
        for of, n in ((4, 1), (4, 2), (6, 3))
    },
    "6 heads in 2 groups": {"heads": 6, "groups": 2},
    "positions on scores and values": {"hidden": [[], range(3)], "scheme": PerHead},
    **{
        f"a mask of one's own, {shape}": {"hidden": [[2], range(10, 13)], "extra": shape}
        for shape in ((2, 1, 13, 13), (1, H, 13, 13), (2, 1, 1, 13))
    },
    "small chunks": {"length": 22, "hidden": [[], range(15, 22)], "largest": 40},
    "scores far apart": {"scale": 500.0},
}


@pytest.mark.parametrize(("name", "causal"), WAYS)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_equal_dense_attention_over_the_pattern(
    name, causal, case, monkeypatch
):
    default = {"length": 13, "hidden": [[], []], "heads": H, "groups": H, "extra": None}
    case = {**default, "scheme": Position, "largest": blockwise.LARGEST, "scale": 1, **CASES[case]}
    monkeypatch.setattr(blockwise, "LARGEST", case["largest"])
    kernel, length, hidden = (
        make(name, case["heads"], case["groups"]),
        case["length"],
        case["hidden"],
    )
    real = torch.ones(len(hidden), length, dtype=torch.bool)
    for row, places in enumerate(hidden):
        real[row, list(places)] = False
    mask, allowed = masked(real, causal), allowed_of(name, kernel, real, causal)
    if case["extra"] is not None:
        extra = torch.rand(case["extra"], generator=torch.Generator().manual_seed(3)) < 0.6
        mask, allowed = mask.with_extra(extra), allowed & extra
    tensors = inputs(length, case["groups"], case["heads"], len(hidden), case["scale"])
    agree(kernel, tensors, mask, allowed, real, case["scheme"](Stack(H * DH, H)))
    if name in DECODERS and case["groups"] < H and case["extra"] is None:
        pattern = kernel.pattern(full_mask(real))  # as which they read their cache
        assert torch.equal(pattern.expand_as(allowed), allowed_of(name, kernel, real, False))


@pytest.mark.parametrize(("name", "causal"), WAYS)
def test_observed_weights_are_those_of_the_pattern_and_change_nothing(name, causal):
    kernel, real = make(name), torch.ones(B, 13, dtype=torch.bool)
    real[1, :4] = False
    mask, (q, k, v) = masked(real, causal), inputs(13)
    before, seen = kernel(q, KeysValues(k, v), mask, NOWHERE).context, []
    kernel.observers = (seen.append,)
    assert torch.equal(kernel(q, KeysValues(k, v), mask, NOWHERE).context, before)
    kernel.edits = (lambda weights, visible: weights,)
    context = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    rows = real[:, None, :, None]
    torch.testing.assert_close(context * rows, before * rows)
    assert torch.autograd.grad(context.sum(), seen[1])[0].abs().sum() > 0
    allowed = allowed_of(name, kernel, real, causal)
    expected, _ = dense(q, k, v, allowed)
    torch.testing.assert_close(seen[0] * rows, expected * rows)
    assert torch.equal(seen[0] * rows > 0, allowed)


@pytest.mark.parametrize(("name", "causal"), WAYS)
def test_dropout_drops_single_weights_in_training_only(name, causal):
    length = 13
    kernel = KERNELS[name](HeadShape(H, H, length, 0.4))
    real = torch.ones(1, length, dtype=torch.bool)
    q, k = torch.randn(2, 1, H, length, length, dtype=torch.float64)
    shown = torch.eye(length, dtype=torch.float64).expand(1, H, -1, -1)  # context is the weights
    weights = kernel.eval()(q, KeysValues(k, shown), masked(real, causal), NOWHERE).context
    torch.manual_seed(0)
    dropped = kernel.train()(q, KeysValues(k, shown), masked(real, causal), NOWHERE).context
    kept = dropped > 0
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.6, rtol=1e-4, atol=0)
    share = 1 - kept[weights > 0].double().mean()
    assert 0.25 < share < 0.55


@pytest.mark.parametrize(("name", "causal"), WAYS)
def test_no_tensor_of_length_squared_is_made(name, causal):
    length = 2048
    sizes = {"stride": 45} if name in DECODERS else {"block_size": 16}
    kernel = partial(KERNELS[name].func, **{**KERNELS[name].keywords, **sizes})(HeadShape(2, 1, 4))
    q, k, v = (torch.randn(1, heads, length, 4, requires_grad=True) for heads in (2, 1, 1))
    real = torch.ones(1, length, dtype=torch.bool)
    with Largest() as largest:
        kernel(q, KeysValues(k, v), masked(real, causal), NOWHERE).context.sum().backward()
    assert 2 * length * 4 <= largest.numbers <= length**2 // 4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("own", [False, True])
def test_few_tokens_go_the_dense_way_and_give_the_same(name, causal, own, monkeypatch):
    monkeypatch.setattr(FactorizedKernel, "dense_up_to", 17)
    kernel, real = make(name), torch.ones(3, 17, dtype=torch.bool)
    real[0, :6], real[1, 11:], real[2, [0, 4, 5, 16]] = False, False, False
    mask, tensors = masked(real, causal), inputs(17, batch=3)
    if own:
        mask = mask.with_extra(torch.rand(3, 1, 17, 17, generator=torch.Generator()) < 0.6)
    allowed = allowed_of(name, kernel, real, causal)
    allowed = allowed & mask.extra if own else allowed
    monkeypatch.setattr(FactorizedKernel, "_blocks", None)
    agree(kernel, tensors, mask, allowed, real)
    maps = []
    kernel.observers, q, kv = (maps.append,), tensors[0], KeysValues(*tensors[1:])
    shown = kernel(q, kv, mask, NOWHERE).context
    kernel.observers = ()
    assert torch.equal(kernel(q, kv, mask, NOWHERE).context, shown)
    rows = real[:, None, :, None]
    torch.testing.assert_close(maps[0] * rows, dense(*tensors, allowed)[0] * rows)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", DECODERS)
def test_a_long_past_of_beams_that_change_is_decoded_as_one_full_pass(name, beams):
    kernel, position = make(name), SlopedScores(Stack(H * DH, H))
    cache, past = kernel.make_cache(beams), torch.zeros(2 * beams, 3 * H, 0, DH).double()
    for step in range(34):
        new = torch.randn(len(past), 3 * H, 1, DH, dtype=torch.float64)
        past = torch.cat((past, new), dim=2)
        places = torch.arange(past.shape[2])
        q, k, v = new.chunk(3, dim=1)
        mask = Mask(places[-1:], places, causal=True)
        got = kernel(q, KeysValues(k, v), mask, position, cache).context
        q, k, v = past.chunk(3, dim=1)
        full = kernel(q, KeysValues(k, v), Mask(places, places, causal=True), position).context
        torch.testing.assert_close(got, full[:, :, -1:], atol=1e-10, rtol=1e-10)
        index = torch.randint(beams, (len(past) // beams, beams))
        cache.reorder(index)
        past = past[(index + beams * torch.arange(len(index))[:, None]).flatten()]
        if step == 20:
            cache.crop(19)
            past = past[:, :, :19]
        if step == 25:
            cache.keep(torch.tensor([1]))
            past = past[beams:]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", DECODERS)
def test_a_token_that_is_decoded_reads_the_keys_of_its_sets_alone(name, beams):
    """What is not a number spreads from any key that is read, be its weight 0."""
    length, kernel = 100, make(name)
    kernel.stride = 10
    cache, mask = kernel.make_cache(beams), full_mask(torch.ones(1, length, dtype=torch.bool))
    seen = kernel.pattern(mask).expand(1, H, length, length)[0, :, -1].any(dim=0)
    x = torch.randn(beams, H, length, DH).masked_fill(~seen[:, None], torch.nan)
    cache.append(KeysValues(x[:, :, :-1], x[:, :, :-1]))
    places, last = torch.arange(length), x[:, :, -1:]
    mask = Mask(places[-1:], places, causal=True)
    assert kernel(last, KeysValues(last, last), mask, NOWHERE, cache).context.isfinite().all()


@pytest.mark.parametrize(
    "kernel",
    [
        partial(StridedKernel, stride=10**9),
        partial(FixedKernel, stride=10**9),
        partial(BigBirdKernel, block_size=10**9),
    ],
)
def test_a_sentence_shorter_than_a_block_is_not_filled_up_to_it(kernel):
    block, real = kernel(HeadShape(H, H, DH)), torch.ones(B, 13, dtype=torch.bool)
    everything = torch.ones(B, H, 13, 13, dtype=torch.bool)
    agree(block, inputs(13), full_mask(real), everything, real)
