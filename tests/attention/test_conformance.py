"""The laws that every choice of conf/attention obeys, with every position it takes."""

import copy
import re
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from seqattn.analysis import capture
from seqattn.attention.base import LAWS, Attention
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask, positions_of
from seqattn.positions import ShawPosition
from tests.absent import of_extra
from tests.builders import (
    DIM,
    HEADS,
    abilities_of,
    attention_choices,
    attention_variants,
    causal_mask,
    fitting,
    full_mask,
    load_choice,
    load_variant,
    make_attention,
    make_position,
    mixer_choices,
    own_choices,
    position_choices,
    schemes,
)
from tests.tolerance import close

B, T, S, K = 2, 5, 7, 3
LENGTHS = (5, 3)
LAYERS = [*attention_variants(), *mixer_choices()]
"""What may mix the tokens of a sequence in a layer."""
DECODERS = [name for name in LAYERS if abilities_of(name).fits("decoder")]
EVERYONE = torch.ones(B, T, dtype=torch.bool)


def built(name, dim=DIM, seed=0):
    return make_attention(load_variant(name), dim, seed=seed)


def holds(name, law):
    """Skips where the attention declares that a law cannot hold, and why."""
    reason = getattr(built(name), "exceptions", {}).get(law)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")


def with_schemes(names):
    """Test parameters: each name with the positions to try, and with the rest of what it takes."""
    for name in names:
        tried, rest = schemes(name)
        yield pytest.param(name, tried, id=name)
        if rest:
            yield pytest.param(name, rest, id=f"{name}-rest", marks=pytest.mark.exhaustive)


def positions(names, dim=DIM):
    """Each scheme's name and the part of it that a layer uses."""
    return [(name, make_position(load_choice("position", name), dim)) for name in names]


def self_masks(abilities):
    """The masks that an attention of a sequence to itself can be given."""
    return [full_mask] * abilities.bidirectional + [causal_mask] * abilities.causal


def masks_of(name, real=EVERYONE):
    made = [make(real) for make in self_masks(abilities_of(name))]
    return made or [Mask(torch.arange(T), torch.arange(T), real)]


def takes_custom_masks(name):
    return isinstance(getattr(built(name), "kernel", None), WeightedKernel)


def attend(attention, query, memory, mask, position=None, cache=None):
    position = position or make_position(load_choice("position", "none"), query.shape[-1])
    if not isinstance(attention, Attention):
        return attention.mix(query, mask, position, cache)
    return attention(query, attention.project(memory), mask, position, cache).output


def test_the_shipped_choices_are_found():
    assert {"mha", "mqa", "gqa"} <= set(attention_choices())
    assert {"none", "sinusoidal", "learned", "rope"} <= set(position_choices())


@pytest.mark.parametrize("name", attention_choices())
def test_an_exception_names_a_law_and_gives_a_reason(name):
    for law, reason in built(name).exceptions.items():
        assert law in LAWS
        assert len(reason.split()) > 2


@pytest.mark.parametrize("name", [*attention_choices(), *mixer_choices()])
def test_the_docstring_states_the_cost_and_the_source(name):
    if name in own_choices():
        pytest.skip("asked of what is shipped alone")
    attention = built(name)
    text = type(getattr(attention, "kernel", attention)).__doc__
    words = ["Time", "memory", "cache", *(["right to left"] if name in mixer_choices() else [])]
    assert re.search("arXiv|aclanthology", text), f"{name} has no source"
    for word in words:
        assert word.lower() in text.lower(), f"{name} says nothing of {word}"


@pytest.mark.parametrize(
    ("name", "names"), with_schemes(n for n in LAYERS if abilities_of(n).causal)
)
def test_no_output_depends_on_a_later_token(name, names):
    holds(name, "causality")
    attention = built(name)
    for scheme, position in positions(names):
        x = torch.randn(B, T, DIM, requires_grad=True)
        with capture(attention) as maps:
            out = attend(attention, x, x, causal_mask(EVERYONE), position)
        seen = torch.ones(B, T, T, dtype=torch.bool).tril()
        if attention.abilities.weights:
            ((weights,),) = maps.values()
            seen = weights.sum(dim=1) > 0
        for t in range(T):
            (gradient,) = torch.autograd.grad(out[:, t].square().sum(), x, retain_graph=True)
            assert (gradient[:, t + 1 :] == 0).all(), scheme
            assert (gradient.abs().amax(dim=2) > 0)[seen[:, t]].all(), scheme


def reach(name):
    """The longest text of which an attention declares to hide nothing; 0 for none."""
    return getattr(getattr(built(name), "kernel", None), "sees_all_up_to", 0)


@pytest.mark.parametrize("name", filter(reach, attention_variants()))
def test_all_of_a_text_as_short_as_declared_is_seen(name):
    attention, length = built(name), reach(name)
    # others hide as hashes fall; a small summary may be a complete block
    sparse = hasattr(attention.kernel, "pattern") and "small" not in name
    for longer in range(2 if sparse else 1):
        real = torch.ones(1, length + longer, dtype=torch.bool)
        x = torch.randn(1, length + longer, DIM) / 10
        masks = [make(real) for make in self_masks(attention.abilities)]
        hides = []
        for mask in masks:
            with capture(attention) as maps:
                attend(attention, x, x, mask)
            ((weights,),) = maps.values()
            others = mask.dense().expand_as(weights) & ~torch.eye(len(x[0]), dtype=torch.bool)
            hides.append(bool((weights[others] == 0).any()))
        assert any(hides) == bool(longer)


@pytest.mark.parametrize(("name", "names"), with_schemes(LAYERS))
def test_real_outputs_do_not_depend_on_padding_on_either_side(name, names):
    holds(name, "padding")
    attention = built(name)
    sentences = [torch.randn(1, length, DIM) for length in LENGTHS]
    everyone = [torch.ones(1, length, dtype=torch.bool) for length in LENGTHS]
    for scheme, position in positions(names):
        for make in self_masks(attention.abilities):
            alone = [
                attend(attention, sentence, sentence, make(real), position)[0]
                for sentence, real in zip(sentences, everyone)
            ]
            for before, after in ((0, 4), (4, 0), (2, 3)):
                batch, real = padded_rows(sentences, before, after)
                together = attend(attention, batch, batch, make(real), position)
                for row, expected in enumerate(alone):
                    got = together[row, real[row]]
                    close(got, expected, 5e-5, msg=said(scheme))


def said(scheme):
    """Puts the scheme's name before what a comparison says."""
    return lambda text: f"position={scheme}: {text}"


def padded_rows(sentences, before, after):
    """The sentences in one batch among random padding, and which of it is real.

    Without padding before, they begin together; else they end together.
    """
    longest = before + max(LENGTHS) + after
    batch, real = torch.randn(B, longest, DIM), torch.zeros(B, longest, dtype=torch.bool)
    starts = [before + (max(LENGTHS) - length) * (before > 0) for length in LENGTHS]
    for row, (start, sentence) in enumerate(zip(starts, sentences)):
        batch[row, start : start + sentence.shape[1]] = sentence[0]
        real[row, start : start + sentence.shape[1]] = True
    return batch, real


@pytest.mark.parametrize("name", fitting("cross"))
def test_cross_attention_does_not_depend_on_the_padding_of_its_source(name):
    holds(name, "padding")
    attention = built(name)
    query, memory = torch.randn(1, T, DIM), torch.randn(1, S, DIM)
    everyone = Mask(torch.arange(T), torch.arange(S), torch.ones(1, S, dtype=torch.bool))
    expected = attend(attention, query, memory, everyone)
    for left, right in ((0, 3), (3, 0), (1, 2)):
        junk = [torch.randn(1, count, DIM) * 100 for count in (left, right)]
        real = torch.tensor([[False] * left + [True] * S + [False] * right])
        mask = Mask(torch.arange(T), positions_of(real), real)
        got = attend(attention, query, torch.cat((junk[0], memory, junk[1]), dim=1), mask)
        close(got, expected)


@pytest.mark.parametrize("name", LAYERS)
def test_a_query_with_nothing_to_see_gets_zero_context_and_zero_gradient(name):
    holds(name, "blind")
    attention = built(name)
    real = torch.tensor([[1] * T, [0] * T], dtype=torch.bool)
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    for dtype, mask in product(dtypes, masks_of(name, real)):
        attention.to(dtype)
        x = torch.randn(B, T, DIM, dtype=dtype, requires_grad=True)
        out = attend(attention, x, x, mask)
        bias = attention.output.bias if isinstance(attention, Attention) else x.new_zeros(())
        assert torch.equal(out[1], bias.expand(T, DIM))
        (blind,) = torch.autograd.grad(out[1].square().sum(), x, retain_graph=True)
        assert torch.equal(blind, torch.zeros_like(blind))
        attention.zero_grad()
        out.square().sum().backward()
        assert all(p.grad.isfinite().all() for p in attention.parameters() if p.grad is not None)
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()
        assert (x.grad[0].abs().amax(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("name", "names"), with_schemes(n for n in attention_variants() if abilities_of(n).weights)
)
def test_observed_weights_skip_masked_keys_sum_to_one_and_change_nothing(name, names):
    holds(name, "weights")
    attention = built(name)
    x = torch.randn(B, T, DIM)
    real = torch.tensor([[1] * T, [0, 1, 1, 1, 0]], dtype=torch.bool)
    for (scheme, position), mask in product(positions(names), masks_of(name, real)):
        before = attend(attention, x, x, mask, position)
        with capture(attention) as maps:
            after = attend(attention, x, x, mask, position)
        assert torch.equal(before, after), scheme
        ((weights,),) = maps.values()
        allowed = mask.dense().expand(B, HEADS, T, T)
        assert (weights[~allowed] == 0).all(), scheme
        assert attention.abilities.signed or (weights >= 0).all(), scheme
        if attention.abilities.normalized:
            torch.testing.assert_close(weights.sum(-1), allowed.any(-1).float(), msg=said(scheme))


def accounted(attention, x, memory, mask, position=None):
    """What keys give (B, T, S, D), held to the outputs of tokens together with the bias.

    To outputs that nobody looks at, too: training, evaluation and search may run by other means.
    """
    decomposition = of_extra("explain.explanations.decomposition")
    with torch.no_grad(), decomposition.decomposed(attention) as parts:
        outputs = {"looked at": attend(attention, x, memory, mask, position)}
    given = parts[""].contributions()
    for training, learning in product((True, False), repeat=2):
        with torch.set_grad_enabled(learning):
            out = attend(attention.train(training), x, memory, mask, position)
        outputs[f"{training=}, {learning=}"] = out.detach()
    made, real = given.sum(dim=2) + attention.output.bias, mask.real_queries
    real = EVERYONE if real is None else real
    for name, output in outputs.items():
        close(output[real], made[real], msg=partial("{}: {}".format, name))
    return given


@pytest.mark.parametrize("name", [n for n in attention_variants() if takes_custom_masks(n)])
def test_a_mask_for_each_head_hides_keys_from_that_head_and_a_blind_one_from_all(name):
    kernel, places = built(name).kernel, torch.arange(S)
    extra = torch.rand(B, HEADS, S, S) < 0.7
    extra[0, 1, 3], extra[:, :, :, 5] = False, False  # a blind head; a key that no head sees
    mask = Mask(places, places, torch.tensor([[1] * S, [0] + [1] * (S - 1)]).bool(), extra=extra)
    query, keys, values = (
        torch.randn(B, heads, S, kernel.head_dim)
        for heads in (HEADS, kernel.num_kv_heads, kernel.num_kv_heads)
    )
    position, allowed = make_position(load_choice("position", "none")), mask.dense()
    attend, maps = partial(kernel, query, KeysValues(keys, values), mask, position), []
    context, kernel.observers = attend().context, (maps.append,)
    close(attend().context, context)
    assert (maps[0][~allowed] == 0).all()
    assert (context[~allowed.any(-1)] == 0).all()
    keys[:, :, 5], values[:, :, 5], kernel.observers = 9.0, 9.0, ()
    assert torch.equal(attend().context, context)


@pytest.mark.parametrize("name", ["linear", "linformer", "lsh", "performer", "xca"])
def test_a_mask_that_it_cannot_apply_is_refused(name):
    attention, x = built(name), torch.randn(B, T, DIM)
    masks = [] if attention.abilities.causal else [causal_mask(EVERYONE)]
    if name != "lsh":  # which applies the user's own
        masks.append(full_mask(EVERYONE).with_extra(torch.ones(T, T, dtype=torch.bool)))
    for mask in masks:
        with pytest.raises(AssertionError):
            attend(attention, x, x, mask)


@pytest.mark.parametrize(
    ("name", "names"), with_schemes(n for n in attention_variants() if abilities_of(n).weights)
)
def test_weights_times_values_through_the_projection_make_up_the_output(name, names):
    holds(name, "accounts")
    attention = built(name)
    attention.gates = torch.rand(attention.gated_heads)
    x = torch.randn(B, T, DIM)
    real = torch.tensor([[1] * T, [0, 1, 1, 1, 0]], dtype=torch.bool)
    tried = positions(names)
    if "value_term" in attention.abilities.hooks:
        shaw = partial(ShawPosition, max_distance=2, values=True)
        tried.append(("shaw with values", make_position(shaw)))
    masks = [replace(mask, real_queries=real) for mask in masks_of(name, real)]
    for (_, position), mask in product(tried, masks):
        given = accounted(attention, x, x, mask, position)
        allowed = mask.dense().expand(B, HEADS, T, T)[:, 0]
        assert (given[~allowed] == 0).all()
        assert (given[allowed] != 0).any()


@pytest.mark.parametrize("name", [n for n in fitting("cross") if abilities_of(n).weights])
def test_they_do_so_across_to_a_padded_source(name):
    holds(name, "accounts")
    real = torch.tensor([[1] * S, [0, 0, 1, 1, 1, 1, 0]], dtype=torch.bool)
    mask = Mask(torch.arange(T), positions_of(real), real)
    given = accounted(built(name), torch.randn(B, T, DIM), torch.randn(B, S, DIM), mask)
    assert (given.transpose(1, 2)[~real] == 0).all()


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_agree_with_finite_differences_in_float64(name):
    holds(name, "gradients")
    dim = 8
    attention = built(name, dim).double()
    position = make_position(load_choice("position", "none"), dim)
    names, values = zip(*attention.named_parameters())
    real = torch.tensor([[1, 1, 1], [0, 1, 1]], dtype=torch.bool)
    x = torch.randn(B, 3, dim, dtype=torch.float64, requires_grad=True)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = attention

        def forward(self, x, mask):
            return attend(self.attention, x, x, mask, position)

    def call(mask, x, *parameters):
        named = {f"attention.{key}": value for key, value in zip(names, parameters)}
        return torch.func.functional_call(Block(), named, (x, mask))

    inputs = (x, *(value.detach().clone().requires_grad_() for value in values))
    for mask in masks_of(name, real):
        assert torch.autograd.gradcheck(partial(call, mask), inputs, fast_mode=True)


@pytest.mark.parametrize("name", LAYERS)
def test_autocast_to_bfloat16_stays_close_to_float32(name):
    holds(name, "autocast")
    attention = built(name)
    x = torch.randn(B, T, DIM)
    for mask in masks_of(name):
        exact = attend(attention, x, x, mask)
        with torch.autocast("cpu", torch.bfloat16):
            rough = attend(attention, x, x, mask)
        assert rough.dtype == torch.bfloat16
        torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)


def compiled_variants():
    """Test parameters: of each kernel one, that which cuts short sequences too where there is one.

    Compiling takes seconds: what shares its kernel with another is exhaustive, and so is, but for
    a dense, a blockwise and a linear one, what PyTorch makes of gradients ahead of time.
    """
    for name in LAYERS:
        small = f"{name}, small" in LAYERS
        late = small or name in ("gqa", "mqa", "moa", "ring, small")
        ahead = name in ("mha", "sliding_window, small", "linear, small", *mixer_choices())
        for backend, tried in (("eager", not late and not ahead), ("aot_eager", ahead)):
            marks = () if tried else pytest.mark.exhaustive
            yield pytest.param(name, backend, marks=marks, id=f"{name}-{backend}")


@pytest.mark.parametrize(("name", "backend"), compiled_variants())
def test_it_compiles_whole_and_gives_the_same(name, backend):
    holds(name, "compile")
    attention = built(name)
    position = make_position(load_choice("position", "rope"))
    if not position.hooks <= attention.abilities.hooks:
        position = make_position(load_choice("position", "none"))
    real = torch.tensor([[1] * T, [1, 1, 1, 0, 0]], dtype=torch.bool)
    x, twin = (torch.randn(B, T, DIM).requires_grad_() for _ in range(2))
    twin.data.copy_(x.data)
    for mask in masks_of(name, real)[-1 if isinstance(attention, Attention) else 0 :]:
        torch.compiler.reset()  # each choice compiles afresh, however many there are
        compiled = torch.compile(attend, fullgraph=True, backend=backend)
        ours = compiled(attention, x, x, mask, position)
        eager = attend(attention, twin, twin, mask, position)
        close(ours, eager)
        (got,) = torch.autograd.grad(ours.square().sum(), x)
        (expected,) = torch.autograd.grad(eager.square().sum(), twin)
        close(got, expected, 1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_dict_restores_it_exactly(name):
    attention = built(name)
    other = built(name, seed=1)
    x = torch.randn(B, T, DIM)
    mask = masks_of(name)[0]
    assert not torch.equal(attend(attention, x, x, mask), attend(other, x, x, mask))
    other.load_state_dict(copy.deepcopy(attention.state_dict()))
    assert torch.equal(attend(attention, x, x, mask), attend(other, x, x, mask))


@pytest.mark.parametrize(("name", "names"), with_schemes(DECODERS))
def test_tokens_in_pieces_through_its_cache_equal_one_causal_pass(name, names):
    holds(name, "cache")
    attention = built(name)
    x, places = torch.randn(B, T, DIM), torch.arange(T)
    for scheme, position in positions(names):
        expected = attend(attention, x, x, causal_mask(EVERYONE), position)
        for cuts in ((1, 1, 1, 1, 1), (T,), (2, 1, 2)):
            cache, steps, end = attention.make_cache(beams=1), [], 0
            for piece in x.split(cuts, dim=1):
                start, end = end, end + piece.shape[1]
                mask = Mask(places[start:end], places[:end], causal=True)
                steps.append(attend(attention, piece, piece, mask, position, cache))
            got = torch.cat(steps, dim=1)
            close(got, expected, 5e-5, msg=said(scheme))


@torch.inference_mode()
@pytest.mark.parametrize(("name", "names"), with_schemes(DECODERS))
def test_beams_of_ragged_sentences_that_reorder_and_leave_go_on_as_each_would_alone(name, names):
    holds(name, "cache")
    attention = built(name)
    for (scheme, position), blank in product(positions(names), (0, 2)):
        rows = [torch.randn(3, DIM)] * K + [torch.randn(3 - blank, DIM)] * K
        real = torch.ones(B, 3, dtype=torch.bool)
        real[1, :blank] = False
        new = torch.stack([F.pad(row, (0, 0, 3 - len(row), 0), value=9.0) for row in rows])
        cache = attention.make_cache(beams=K)
        for step in range(6):
            mask = beam_mask(real, new.shape[1])
            got = attend(attention, new, new, mask, position, cache)[:, -1]
            for row, out in zip(rows, got):
                history = row[None]
                everyone = torch.ones(history.shape[:2], dtype=torch.bool)
                alone = attend(attention, history, history, causal_mask(everyone), position)
                close(out, alone[0, -1], 5e-5, msg=said(scheme))
            index = torch.tensor([[2, 0, 0], [1, 1, 2]])[: len(real)]
            cache.reorder(index)
            rows = [rows[K * b + k] for b, beams in enumerate(index.tolist()) for k in beams]
            if step == 1:  # the first sentence is done
                cache.keep(torch.tensor([1]))
                rows, real = rows[K:], real[1:]
            new = torch.randn(len(rows), 1 + step % 2, DIM)
            rows = [torch.cat((row, more)) for row, more in zip(rows, new)]
            real = F.pad(real, (0, new.shape[1]), value=True)


def beam_mask(real, steps):
    """The mask of the last `steps` tokens of K beams, which share their sentence's padding."""
    if real.all():
        places = torch.arange(real.shape[1])
        return Mask(places[-steps:], places, causal=True)
    places = positions_of(real).repeat_interleave(K, dim=0)
    return Mask(places[:, -steps:], places, real, causal=True)
