"""Value zeroing, held to a loop over values set to zero by hand."""

from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F

from seqattn.analysis import intervene
from seqattn.analysis.intervene import without_keys
from seqattn.errors import UserError
from seqattn.extras.explain.explanations import METHODS, explain
from seqattn.extras.explain.explanations.predictions import decoder_input
from tests.builders import HEADS, heads, load_choice, load_variant, make_transformer
from tests.models.recurrents import make_recurrent

SOURCE, TARGET = torch.tensor([[4, 5, 6, 9, 3]]), torch.tensor([[6, 8, 4, 3]])
ZEROING = METHODS["value_zeroing"]


@contextmanager
def projected(model, name, key):
    """Within the block the attention's projection gives a zero as value of one key."""
    attention = model.get_submodule(name)
    project = attention.project

    def zeroed(memory):
        found = project(memory)
        found.values[:, :, key] = 0
        return found

    attention.project = zeroed
    yield
    del attention.project


def unweighted(model, name, key):
    return intervene(model, {name: without_keys(key)})


def outputs(model, stack, number):
    """What a layer gives for the sentence; after the last layer, what the stack gives."""
    stack, seen = model.get_submodule(stack), []
    last = number == len(stack.layers) - 1
    outlet = stack.norm if last else stack.layers[number]
    with outlet.register_forward_hook(lambda part, args, output: seen.append(output)):
        model(SOURCE, decoder_input(TARGET))
    found = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
    return found[0]


def distances(model, stack, number, slot, keys, zeroed):
    """(Q, keys) cosine distances, a key at a time."""
    plain, columns = outputs(model, stack, number), []
    for key in range(keys):
        with zeroed(model, f"{stack}.layers.{number}.{slot}", key):
            columns.append(1 - F.cosine_similarity(outputs(model, stack, number), plain, dim=-1))
    return torch.stack(columns, dim=1)


def written_out(model, zeroed):
    """Contributions of the source (T, S) and of the prefix (T, T)."""
    length, steps = SOURCE.shape[1], TARGET.shape[1]
    encoded = torch.eye(length).double()
    for number in range(len(model.encoder.layers)):
        found = distances(model, "encoder", number, "self_attention", length, zeroed)
        encoded = found / found.sum(dim=1, keepdim=True) @ encoded
    source, prefix = torch.zeros(steps, length).double(), torch.eye(steps).double()
    for number in range(len(model.decoder.layers)):
        own = distances(model, "decoder", number, "self_attention", steps, zeroed)
        cross = distances(model, "decoder", number, "cross_attention", length, zeroed)
        total = own.sum(dim=1, keepdim=True) + cross.sum(dim=1, keepdim=True)
        source, prefix = (own @ source + cross) / total, own @ prefix / total
    return source @ encoded, prefix


@torch.no_grad()
@pytest.mark.parametrize("zeroed", [projected, unweighted])
@pytest.mark.parametrize("name", ["mha", "gqa", "post-norm", "sliding_window, small", "linear"])
def test_value_zeroing_is_the_written_out_loop(name, zeroed):
    rope = load_choice("position", "rope")
    if name == "linear":
        if zeroed is unweighted:
            pytest.skip("linear attention shows no weights")
        model = make_transformer(load_variant(name), cross=load_variant(name))
    elif name == "post-norm":
        model = make_transformer(heads(HEADS, 1), rope, pre_norm=False)
    else:
        model = make_transformer(load_variant(name), rope, layers=(1, 2))
    model = model.double()
    found = explain(model, SOURCE, TARGET, "value_zeroing")
    source, prefix = written_out(model, zeroed)
    torch.testing.assert_close(found.source[0], source, atol=1e-9, rtol=1e-6)
    torch.testing.assert_close(found.prefix[0], prefix, atol=1e-9, rtol=1e-6)
    assert found.rest.abs().max() < 1e-9


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"input_feeding": True, "order": "after"}])
def test_of_a_recurrent_model_it_is_the_distance_of_features_without_an_annotation(options):
    model = make_recurrent("bahdanau", **options).double()
    plain = model.features(decoder_input(TARGET), model.start(model.encode(SOURCE))).features
    columns = []
    for key in range(SOURCE.shape[1]):
        with intervene(model, {"*": without_keys(key)}):
            state = model.start(model.encode(SOURCE))
            cut = model.features(decoder_input(TARGET), state).features
        columns.append(1 - F.cosine_similarity(cut, plain, dim=-1))
    wanted = torch.stack(columns, dim=2)
    found = explain(model, SOURCE, TARGET, "value_zeroing")
    wanted = wanted / wanted.sum(dim=2, keepdim=True)
    torch.testing.assert_close(found.source, wanted, atol=1e-9, rtol=1e-6)
    assert not found.prefix.any()


def test_a_model_whose_layers_move_no_values_is_refused_in_words():
    model = make_transformer(load_variant("xca"))
    words = "encoder.layers.0.self_attention does not mix values of different tokens"
    assert ZEROING.why_not(model) == words
    with pytest.raises(UserError, match=f"method=value_zeroing is not available: {words}"):
        explain(model, SOURCE, TARGET, "value_zeroing")
    assert ZEROING.why_not(make_recurrent("none")) == "this recurrent model has no attention"
