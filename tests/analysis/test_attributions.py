"""Methods by gradients and by occlusion: what each number is, held to references."""

import captum.attr
import pytest
import torch

from seqattn.analysis.explanations.gradients import InputXGradient, IntegratedGradients
from seqattn.analysis.explanations.occlusion import Occlusion
from seqattn.analysis.explanations.predictions import decoder_input
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


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients_add_up_to_the_log_probability(name):
    """The sum misses by the quadrature's error alone, which falls with its points."""
    model = MODELS[name]().double()
    wanted = scores(model, SOURCES, TARGETS) * (TARGETS != 0)
    errors = []
    for steps in (2, 64):
        found = IntegratedGradients(steps, most=steps).explain(model, SOURCES, TARGETS)
        total = found.source.sum(dim=2) + found.prefix.sum(dim=2) + found.rest
        errors.append(float((total - wanted).abs().max()))
    assert errors[1] < KINKED.get(name, 1e-5) < errors[0]


@torch.no_grad()
def test_points_are_doubled_for_the_sentences_alone_whose_rows_do_not_fit():
    """A long embedding makes one of two sentences leap on the line."""
    model = MODELS["sinusoidal"]().double()
    model.source_embedding.table.weight[9] *= 20
    source, target = padded([[4, 5, 6, 7, 3], [9, 8, 3]]), padded([[6, 4, 3], [5, 8, 7, 3]])
    scored = scores(model, source, target) * (target != 0)
    by_steps = {}
    for steps, fit in ((7, [True, False]), (14, [True, True])):
        found = IntegratedGradients(steps, most=steps).explain(model, source, target)
        total = found.source.sum(dim=2) + found.prefix.sum(dim=2) + found.rest
        misses = (total - scored).abs() > (scored.abs() / 100).clamp(min=0.05)
        assert (~misses).all(dim=1).tolist() == fit
        by_steps[steps] = found
    found = IntegratedGradients(7).explain(model, source, target)
    for part, coarse, fine in zip(found, by_steps[7], by_steps[14]):
        torch.testing.assert_close(part[0], coarse[0])
        torch.testing.assert_close(part[1], fine[1])
    found = IntegratedGradients(7, most=13).explain(model, source, target)
    torch.testing.assert_close(found.source, by_steps[7].source)


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
    model, steps = MODELS[name]().double(), 7
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
    found = IntegratedGradients(steps, most=steps).explain(model, source, target)
    for t in range(target.shape[1]):
        parts = reference.attribute(
            vectors(False),
            vectors(True),
            additional_forward_args=t,
            n_steps=steps,
            method="gausslegendre",
        )
        for ours, theirs in zip((found.source, found.prefix), parts):
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
