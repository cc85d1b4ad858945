"""Methods by gradients and by occlusion: what each number is, held to references."""

import captum.attr
import pytest
import torch

from seqattn.extras.explain.explanations import integrated_gradients
from seqattn.extras.explain.explanations.gradients import InputXGradient
from seqattn.extras.explain.explanations.integrated_gradients import IntegratedGradients
from seqattn.extras.explain.explanations.occlusion import Occlusion
from seqattn.extras.explain.explanations.predictions import decoder_input
from seqattn.tokens import UNK
from tests.builders import heads, load_choice, load_variant, make_transformer, padded
from tests.models.recurrents import make_recurrent

SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]])
TARGETS = padded([[6, 4, 3], [5, 8, 7, 10, 3]])
MODELS = {
    "transformer": lambda: make_transformer(heads(4, 2), activation="gelu"),
    "sinusoidal": lambda: make_transformer(
        position=load_choice("position", "sinusoidal"),
        pre_norm=False,
        share_embeddings="none",
        activation="gelu",
    ),
    "copying": lambda: make_transformer(
        position=load_choice("position", "rope"), copy=True, activation="gelu"
    ),
    "linear": lambda: make_transformer(load_variant("linear"), activation="gelu"),
    "bahdanau": lambda: make_recurrent("bahdanau"),
    "luong, fed": lambda: make_recurrent(
        "luong_general", order="after", input_feeding=True, decoder_layers=2, copy=True
    ),
}
KINKED = {"linear": 1e-4, "bahdanau": 2e-2}
"""What is left of the quadrature's error where an activation has no second, or first, derivative:
elu in linear attention, the maxout of Bahdanau's readout."""


def scores(model, source, target, prefix=None):
    """Log-probabilities (B, T) of target tokens, written out."""
    prefix = decoder_input(target) if prefix is None else prefix
    state = model.start(model.encode(source), cached=False)
    return model.decode(prefix, state).log_softmax(-1).gather(2, target[..., None])[..., 0]


def missed(found, model, source, target):
    """By how much each row's sum misses the log-probability of its target token: (B, T)."""
    total = found.source.sum(dim=2) + found.prefix.sum(dim=2) + found.rest
    return (total - scores(model, source, target) * (target != 0)).abs()


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients_add_up_to_the_log_probability(name, monkeypatch):
    """The sum misses by the quadrature's error alone, which falls with its points."""
    model = MODELS[name]().double()
    errors = []
    for points, pieces in ((2, 1), (8, 8)):
        monkeypatch.setattr(integrated_gradients, "_POINTS", points)
        found = IntegratedGradients(pieces, most=pieces).explain(model, SOURCES, TARGETS)
        errors.append(float(missed(found, model, SOURCES, TARGETS).max()))
    assert errors[1] < KINKED.get(name, 1e-5) < errors[0]


@torch.no_grad()
def test_pieces_are_halved_where_rows_do_not_fit_and_nowhere_else(monkeypatch):
    """A long embedding makes one of two sentences leap on the line."""
    points, read = 0, integrated_gradients.gradient_products

    def counting(*args, **options):
        nonlocal points
        points += len(args[1])
        return read(*args, **options)

    monkeypatch.setattr(integrated_gradients, "gradient_products", counting)
    model = MODELS["sinusoidal"]().double()
    model.source_embedding.table.weight[9] *= 60
    source, target = padded([[4, 5, 6, 7, 3], [9, 8, 3]]), padded([[6, 4, 3], [5, 8, 7, 3]])
    bearable = (scores(model, source, target).abs() / 100).clamp(min=0.05)
    coarse = IntegratedGradients(1, most=1).explain(model, source, target)
    assert (missed(coarse, model, source, target) <= bearable).all(dim=1).tolist() == [True, False]
    assert points == 2 * 8
    points = 0
    found = IntegratedGradients(1).explain(model, source, target)
    assert (missed(found, model, source, target) <= bearable).all()
    assert 3 * 8 < points < 40 * 8
    exact = IntegratedGradients(512, most=512).explain(model, source, target)
    for part, other, whole in zip(found, coarse, exact):
        torch.testing.assert_close(part[0], other[0])
        torch.testing.assert_close(part[1], whole[1], atol=0.05, rtol=0.01)
    few, two = (IntegratedGradients(n, most=2).explain(model, source, target) for n in (1, 2))
    torch.testing.assert_close(few.source[1], two.source[1])


@torch.no_grad()
def test_what_integrated_gradients_leave_is_the_log_probability_after_unknown_words():
    model = MODELS["sinusoidal"]()
    found = IntegratedGradients(1, most=1).explain(model, SOURCES, TARGETS)
    unknown = SOURCES.masked_fill(SOURCES != 0, UNK)
    wanted = scores(model, unknown, TARGETS, torch.full_like(TARGETS, UNK))
    torch.testing.assert_close(found.rest, wanted * (TARGETS != 0), atol=1e-5, rtol=1e-5)


def log_odds(model, source, target):
    p = scores(model, source, target).exp()
    return (p / (1 - p)).log()


@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients_are_captums(name):
    model = MODELS[name]().double()
    source, target = SOURCES[:1], TARGETS[1:]
    prefix, embeddings = decoder_input(target), (model.source_embedding, model.target_embedding)
    true = [embedding.forward for embedding in embeddings]

    def vectors(unknown):
        ids = (torch.full_like(x, UNK) if unknown else x for x in (source, prefix))
        read, told = model.encoder, model.decoder
        places = [
            torch.arange(x.shape[1]) if hasattr(part, "position") else None
            for x, part in ((source, read), (prefix, told))
        ]
        return tuple(
            embedding.forward(x, at).detach() for embedding, x, at in zip(embeddings, ids, places)
        )

    def score(read, told, t):
        for embedding, given in zip(embeddings, (read, told)):
            embedding.forward = lambda ids, *places, given=given: given
        rows = len(read)
        found = scores(model, *(x.expand(rows, -1) for x in (source, target)))
        for embedding, forward in zip(embeddings, true):
            embedding.forward = forward
        return found[:, t]

    reference = captum.attr.IntegratedGradients(score)
    found = IntegratedGradients(2, most=2).explain(model, source, target)
    begin, end = vectors(True), vectors(False)
    middle = tuple((low + high) / 2 for low, high in zip(begin, end))
    for t in range(target.shape[1]):
        settings = {"additional_forward_args": t, "n_steps": 8, "method": "gausslegendre"}
        halves = [
            reference.attribute(high, low, **settings)
            for low, high in ((begin, middle), (middle, end))
        ]
        for ours, *theirs in zip((found.source, found.prefix), *halves):
            theirs = sum(theirs)
            torch.testing.assert_close(ours[:, t], theirs.sum(dim=2), atol=1e-5, rtol=0.0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["sinusoidal", "bahdanau"])
def test_input_x_gradient_is_what_finite_differences_give(name):
    """Each token stands once, so that a row of the table is one place of the sentence."""
    options = {"share_embeddings": "none"}
    model = MODELS[name]() if name == "sinusoidal" else make_recurrent("bahdanau", **options)
    model, nudge = model.double(), 1e-6
    source, target = torch.tensor([[4, 5, 6, 7, 3]]), torch.tensor([[6, 8, 4, 3]])
    found = InputXGradient().explain(model, source, target)
    sides = (source, model.source_embedding, found.source), (
        decoder_input(target), model.target_embedding, found.prefix,
    )  # fmt: skip
    for ids, embedding, ours in sides:
        for place, token in enumerate(ids[0].tolist()):
            row, values = embedding.table.weight[token].clone(), []
            for sign in (1, -1):
                embedding.table.weight[token] = row * (1 + sign * nudge)
                values.append(log_odds(model, source, target))
            embedding.table.weight[token] = row
            wanted = (values[0] - values[1]) / (2 * nudge)
            torch.testing.assert_close(ours[:, :, place], wanted, atol=1e-7, rtol=1e-6)
    total = found.source.sum(dim=2) + found.prefix.sum(dim=2) + found.rest
    torch.testing.assert_close(total, log_odds(model, source, target))


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_occlusion_is_the_plain_loop_over_tokens_made_unknown(name):
    model = MODELS[name]()
    found = Occlusion().explain(model, SOURCES, TARGETS)
    for source, target, *ours in zip(SOURCES, TARGETS, *found):
        source, target = source[source != 0][None], target[target != 0][None]
        prefix, count = decoder_input(target), target.shape[1]
        whole = scores(model, source, target)
        for place in range(source.shape[1]):
            cut = source.clone()
            cut[0, place] = UNK
            drop = whole - scores(model, cut, target)
            torch.testing.assert_close(ours[0][:count, place], drop[0], atol=1e-5, rtol=1e-5)
        for place in range(count):
            cut = prefix.clone()
            cut[0, place] = UNK
            drop = whole - scores(model, source, target, cut)
            torch.testing.assert_close(ours[1][:count, place], drop[0], atol=1e-5, rtol=1e-5)
        total = (ours[0].sum(dim=1) + ours[1].sum(dim=1) + ours[2])[:count]
        torch.testing.assert_close(total, whole[0], atol=1e-5, rtol=1e-5)
