"""Health of attentions: the true weights of real tokens, and none of what has no weights."""

import pytest
import torch
from torch import nn

from seqattn.analysis.capture import capture
from seqattn.extras.pictures.head_statistics import relative_entropy
from seqattn.extras.pictures.health import (
    AttentionHealth,
    health_figures,
    pass_over_texts,
    statistics_of,
)
from seqattn.tokens import EOS, PAD
from tests.builders import load_variant, make_transformer, padded
from tests.models.recurrents import make_recurrent
from tests.training.stand_ins import Module, trainer

SOURCE = padded([[5, 6, 7, 8, EOS], [9, 4, EOS]])
TARGET = padded([[2, 7, 8, 9], [2, 5]])


def figures(model, source=SOURCE, target=TARGET):
    return health_figures(statistics_of(model, pass_over_texts(model, source, target)))


def test_figures_of_a_transformer_are_those_of_its_captured_weights():
    model = make_transformer()
    found = figures(model)
    with torch.no_grad(), capture(model) as maps:
        model(SOURCE, TARGET)
    name = "decoder.layers.1.cross_attention"
    weights, asks, real = maps[name][0], TARGET != PAD, SOURCE != PAD
    entropy = relative_entropy(weights, real[:, None, None])
    rows = asks[:, None].expand_as(entropy)
    assert found[f"attention/{name}/entropy"] == pytest.approx(float(entropy[rows].mean()))
    end = (weights * (SOURCE == EOS)[:, None, None]).sum(dim=-1)[rows].mean()
    assert found[f"attention/{name}/end_mass"] == pytest.approx(float(end))
    assert len(found) == 2 * (4 + 3 + 4)  # no end mark stands among what a decoder has said


@pytest.mark.parametrize("name", ["linear", "sliding_window, small", "moa", "entmax", "lsh"])
def test_padding_changes_no_figure(name):
    model = make_transformer(load_variant(name))
    wide = [nn.functional.pad(ids, (0, 3)) for ids in (SOURCE, TARGET)]
    assert figures(model, *wide) == pytest.approx(figures(model), rel=1e-4, abs=1e-6)


def test_a_window_counts_only_the_keys_within():
    model = make_transformer(load_variant("sliding_window, small"))
    with torch.no_grad():
        for module in model.modules():
            for part in ("query", "key"):
                if isinstance(getattr(module, part, None), nn.Linear):
                    getattr(module, part).weight.zero_()
                    getattr(module, part).bias.zero_()
    found = figures(model)
    of_window = {key: x for key, x in found.items() if "self_attention/entropy" in key}
    assert of_window == pytest.approx(dict.fromkeys(of_window, 1.0), abs=1e-5)
    assert found["attention/encoder.layers.0.self_attention/uniform_heads"] == 1.0


def test_what_has_no_weights_has_no_figure():
    found = figures(make_transformer(load_variant("xca")))
    assert {key.split("/")[1].split(".")[0] for key in found} == {"decoder"}
    assert figures(make_recurrent("none")) == {}


@pytest.mark.parametrize("options", [{}, {"input_feeding": True, "order": "after"}])
def test_a_recurrent_decoder_has_figures_of_its_one_attention(options):
    model = make_recurrent("luong_general", **options)
    found = figures(model)
    with torch.no_grad(), capture(model) as maps:
        model(SOURCE, TARGET)
    [(name, calls)] = [(name, calls) for name, calls in maps.items() if calls]
    weights = torch.cat(list(calls), dim=2)
    entropy = relative_entropy(weights, (SOURCE != PAD)[:, None, None])[(TARGET != PAD)[:, None]]
    assert found[f"attention/{name}/entropy"] == pytest.approx(float(entropy.mean()), rel=1e-4)


def test_the_callback_logs_with_the_scores_of_a_validation_in_training_alone():
    module = Module()
    module.model, module.device = make_transformer().train(), torch.device("cpu")
    health = AttentionHealth(lambda device: pass_over_texts(module.model, SOURCE, TARGET))
    for state in ({"sanity_checking": True}, {"is_global_zero": False}):
        health.on_validation_epoch_end(trainer(**state), module)
    assert module.logged == []
    health.on_validation_epoch_end(trainer(), module)
    assert module.logged == [figures(module.model)]
    assert module.model.training
