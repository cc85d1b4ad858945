"""Tiny bundles that nobody trained, written once."""

import pytest
import torch

from seqattn.bundle.files import write_bundle
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.choices import choices

TEXT = "a dog sees the cat hears some bread finds two birds and an old house by the tree"
SIZES = {
    "transformer": {"dim": 16, "ffn_dim": 20, "encoder_layers": 1, "decoder_layers": 1},
    "rnn": {"dim": 12},
    "span_rnn": {"dim": 12},
}


def corpus():
    words = TEXT.split()
    return [" ".join(words[n:] + words[: n // 2]) for n in range(len(words))]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    options = TokenizerConfig(vocab_size=36)
    return train_tokenizer(corpus(), corpus(), options, tmp_path_factory.mktemp("vocabulary"))


def configuration(model="transformer", **chosen):
    """Nodes of a run with these choices."""
    spans = model.startswith("span")
    names = {
        "model": model,
        "attention": "bahdanau" if model == "rnn" else "mha",
        "position": "sinusoidal" if model == "transformer" else "none",
        "generation": "spans" if spans else "beam",
        "loader": "spans" if spans else "pairs",
        "data": "demo_qa" if spans else "demo_translation",
        "task": "qa" if spans else "translation",
        "tokenizer": "unigram",
        "optimizer": "adamw",
        "schedule": "constant",
        **chosen,
    }
    found = {group: choices(group)[name] for group, name in names.items()}
    found["model"] = {**found["model"], **SIZES[model]}
    return {"name": "tiny", "seed": 1, "choices": names, **found}


def untrained(path, tokenizer, config):
    """Writes a bundle with the weights that a model begins with."""
    torch.manual_seed(0)
    sizes = Vocabularies.of(tokenizer)
    model = Architecture.of(config).build(sizes)
    write_bundle(path, config, model, tokenizer, {"val/loss": 3.5, "val/bleu": {"value": 1.0}})
    return path


@pytest.fixture(scope="session")
def bundle(tmp_path_factory, tokenizer):
    """A Transformer's bundle. Tests leave it as it is."""
    return untrained(tmp_path_factory.mktemp("bundle") / "model", tokenizer, configuration())
