"""Bundles that the page computes, of each vocabulary and position, and their pages."""

import pytest
import torch

import seqattn
from seqattn.bundle.files import write_bundle
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.extras.walkthrough.walkthrough import Walkthrough
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build
from seqattn.tokens import BOS, EOS
from tests.bundle.conftest import configuration, untrained

SEED = 4
"""With it the two likeliest tokens of any step differ by 0.0005 nats or more, beyond rounding."""
EXAMPLES = ("The cat sees a tree.", "Maria buys two books.")
SIZES = {"dim": 24, "ffn_dim": 20, "encoder_layers": 2, "decoder_layers": 2}
KINDS = {
    "bpe": {"position": "rope", "attention": "mha"},
    "unigram": {"position": "sinusoidal", "attention": "gqa"},
}
"""The second has a vocabulary for each side, of 401 and 455 pieces."""


def demo():
    return build(choices("data")["demo_translation"], "data")


def write(path, kind):
    """Writes a bundle whose attention has large weights, as training gives them."""
    config = configuration(**KINDS[kind])
    config["model"] = {**config["model"], **SIZES}
    pairs = [*demo().stream("val")]
    joint = kind == "bpe"
    size = TokenizerConfig(kind=kind, vocab_size=400 if joint else None, joint=joint)
    tokenizer = train_tokenizer(*zip(*pairs), size, path.parent / "vocabulary")
    if kind == "unigram":
        config["model"] |= {"share_embeddings": "target", "encoder_dim": 16}
    bundle = seqattn.load(untrained(path.parent / "model", tokenizer, config))
    torch.manual_seed(SEED)
    with torch.no_grad():
        bundle.model.target_embedding.table.weight[[BOS, EOS]] = 0  # outputs neither begin nor end
        for name, weight in bundle.model.named_parameters():
            if "_attention" in name and name.endswith("weight"):
                weight *= 3
            elif name.endswith("bias"):
                weight.normal_(0, 0.1)
    write_bundle(path, bundle.config, bundle.model, tokenizer, {})
    return path


@pytest.fixture(scope="session", params=KINDS)
def home(request, tmp_path_factory):
    """The folder of a bundle and its page."""
    folder = tmp_path_factory.mktemp(f"walkthrough_{request.param}")
    path = str(write(folder / "bundle", request.param))
    page = str(folder / "page.html")
    Walkthrough(bundle=path, data=demo(), output=page, examples=EXAMPLES).run()
    return folder
