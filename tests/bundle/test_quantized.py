"""Bundles in int8: written, read, and as good in every batch as alone."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import seqattn
from seqattn.attention.base import Attention
from seqattn.bundle.files import write_bundle
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, GreedySearch, LengthLimit
from seqattn.ops import int8
from seqattn.ops.int8 import Int8Linear, matrices, round_weights
from seqattn.settings.choices import choices
from seqattn.settings.nodes import import_path
from tests.bundle.conftest import TEXT, configuration, untrained

ATTENTIONS = [
    name
    for name, node in choices("attention").items()
    if issubclass(import_path(node["_target_"]), Attention)
]
ENCODER_ALONE = {"bigbird", "linformer", "lsh", "xca"}
TABLE = "source_embedding.table.weight"
KINDS = [*ATTENTIONS, "rnn", "span_rnn"]


@pytest.fixture(autouse=True)
def every_layer(monkeypatch):
    """Layers of tests are small, and are in int8 all the same."""
    monkeypatch.setattr(int8, "_LEAST", 1)


def quantized(plain, path):
    """Writes a bundle's weights in int8; gives that bundle, loaded."""
    round_weights(plain.model)
    config = {**plain.config, "quantize": "int8"}
    write_bundle(path, config, plain.model, plain.tokenizer, plain.scores)
    return seqattn.load(path)


@pytest.fixture
def rounded(bundle, tmp_path):
    return quantized(seqattn.load(bundle), tmp_path / "int8")


def configured(kind):
    """A model of a kind, or a Transformer with an attention where that fits."""
    if kind not in ATTENTIONS:
        return configuration(kind)
    slot = "encoder" if kind in ENCODER_ALONE else "decoder"
    return {**configuration(), f"{slot}_attention": choices("attention")[kind]}


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_is_written_and_read_in_int8_and_near_what_it_was(tokenizer, tmp_path, kind):
    path = untrained(tmp_path / "plain", tokenizer, configured(kind))
    plain, found = seqattn.load(path), quantized(seqattn.load(path), tmp_path / "int8")
    assert any(isinstance(layer, Int8Linear) for layer in found.model.modules())
    assert not any(part.requires_grad for part in found.model.parameters())
    if plain.output == "spans":
        before, after = (b.answer("a dog ?", TEXT) for b in (plain, found))
        assert [one.no_answer for one in after] == pytest.approx(
            [one.no_answer for one in before], abs=0.02
        )
        return
    source = torch.tensor(tokenizer.encode_source([TEXT]))
    target = torch.tensor([[2, *tokenizer.encode_target(["the tree"])[0]]])
    with torch.inference_mode():
        before, after = (b.model(source, target).log_softmax(dim=-1) for b in (plain, found))
    assert 0 < (after - before).abs().mean() < 0.05
    assert len(found.generate([TEXT, "a dog"], "greedy")) == 2


def test_the_file_holds_matrices_as_int8_and_the_rest_as_it_was(bundle, tmp_path, rounded):
    before, after = (load_file(path / "model.safetensors") for path in (bundle, rounded.path))
    ends = ".weight", ".weight.int8_scale"
    whole = {name.removesuffix(ends[1]) + ends[0] for name in after if name.endswith(ends[1])}
    assert len(whole) == len(matrices(rounded.model))
    assert whole == {name for name, part in before.items() if part.dim() == 2}
    for name in after.keys() & before.keys():
        assert after[name].dtype == (torch.int8 if name in whole else torch.float32)
        assert name in whole or torch.equal(after[name], before[name])


def test_a_bundle_in_int8_that_is_written_again_is_the_same(rounded, tmp_path):
    write_bundle(tmp_path / "again", rounded.config, rounded.model, rounded.tokenizer, {})
    first, second = (tmp_path / name / "model.safetensors" for name in ("int8", "again"))
    assert first.read_bytes() == second.read_bytes()
    assert seqattn.load(tmp_path / "again").config["quantize"] == "int8"


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_batch_and_padding_change_no_hypothesis(rounded, search):
    words, limit = TEXT.split(), LengthLimit(minimum=8)
    texts = [" ".join(words[n : n + 1 + n % 7]) for n in range(len(words) - 2)]
    together = rounded.hypotheses(texts, search(limit))
    for size in (1, 3):
        found = rounded.hypotheses(texts, search(limit, batch_size=size))
        for one, other in zip(found, together, strict=True):
            assert [h.ids for h in one] == [h.ids for h in other]
            assert one[0].score == pytest.approx(other[0].score, abs=1e-4)


TAMPERED = {
    "no scales": ({TABLE + ".int8_scale": None}, f"{TABLE} that are not finite numbers"),
    "too few scales": (
        {TABLE + ".int8_scale": torch.ones(5, 1)},
        "are not an int8 matrix with row scales",
    ),
    "a scale for all": (
        {TABLE + ".int8_scale": torch.ones(1)},
        "are not an int8 matrix with row scales",
    ),
    "scales of floats": ({TABLE: torch.ones(36, 16)}, "are not an int8 matrix with row scales"),
    "endless scales": (
        {TABLE + ".int8_scale": torch.full((36, 1), torch.inf)},
        f"{TABLE} that are not finite numbers",
    ),
    "scales of nothing": ({"other.int8_scale": torch.ones(36, 1)}, "(unexpected tensor other.int8"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_file_of_int8_that_was_tampered_with_is_refused(rounded, name):
    changes, part = TAMPERED[name]
    file = rounded.path / "model.safetensors"
    tensors = {**load_file(file), **changes}
    save_file({key: value for key, value in tensors.items() if value is not None}, file)
    with pytest.raises(UserError) as error:
        seqattn.load(rounded.path)
    assert part in str(error.value)


@pytest.mark.parametrize("value", ["int4", "8", "[int8]"])
def test_an_unknown_kind_of_weights_is_refused(bundle, tmp_path, value):
    path = shutil.copytree(bundle, tmp_path / "copy")
    with (path / "config.yaml").open("a") as file:
        file.write(f"quantize: {value}\n")
    with pytest.raises(UserError, match="quantize must be int8 or null, got "):
        seqattn.load(path)
