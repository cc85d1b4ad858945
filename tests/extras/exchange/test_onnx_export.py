"""`export to=onnx`: a bundle for onnxruntime, with a page whose program says the same."""

import math
import re
import shutil

import pytest
import torch

import seqattn
from seqattn.extras.exchange.onnx_export import Difference, largest_difference
from seqattn.extras.exchange.onnx_graphs import DECODER, ENCODER, STEP, write_graphs
from tests.cli.small import pairs, refusal, succeed
from tests.extras.exchange.cards import program, write_beginning

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)
MODULE = "seqattn.extras.exchange.onnx_export"
FILES = [f"{name}.onnx" for name in (ENCODER, DECODER, STEP)]


@pytest.fixture(scope="module")
def graphs(trained, tmp_path_factory):
    """The graphs of the trained bundle."""
    directory = tmp_path_factory.mktemp("graphs")
    write_graphs(seqattn.load(trained / "model").model, directory)
    return directory


@pytest.fixture
def export(capfd, trained, graphs, tmp_path, monkeypatch):
    """Exports the trained bundle; gives the directory and what was printed."""

    def copied(_, directory):
        shutil.copytree(graphs, directory, dirs_exist_ok=True)

    def call(*words, output="new", bundle=trained / "model"):
        words = ("to=onnx", f"bundle={bundle}", f"output={tmp_path / output}", *words)
        return tmp_path / output, succeed(capfd, "export", *words)

    monkeypatch.setattr(f"{MODULE}.write_graphs", copied)
    return call


def test_the_program_of_its_page_says_what_the_bundle_says(export, trained, capfd):
    new, out = export()
    assert {*FILES, "README.md", "joint.model"} <= {file.name for file in new.iterdir()}
    assert re.search(r"checked .* 8 random pairs: .* more than \d+e-0[5-9] nats", out)
    texts = [*(source for source, _ in pairs()), "a Q sees <s> ."][::9]
    for text in texts:
        exec(program(new, text), {})
    outputs = seqattn.load(trained / "model").generate(texts, "greedy", limit={"extra": 3})
    assert capfd.readouterr().out.splitlines() == outputs


def test_the_program_of_its_page_begins_texts_as_the_bundle_does(export, trained, tmp_path, capfd):
    write_beginning(trained / "model", tmp_path / "model")
    new, _ = export(bundle=tmp_path / "model")
    texts = [source for source, _ in pairs()][::9]
    for text in texts:
        exec(program(new, text), {})
    bundle, limit = seqattn.load(tmp_path / "model"), {"extra": 3}
    outputs = bundle.generate(texts, "greedy", limit=limit, sentences=None)
    assert capfd.readouterr().out.splitlines() == outputs


def test_rounded_weights_are_smaller_and_say_something(export, graphs, capfd):
    new, out = export("quantize=int8")
    size = (new / FILES[1]).stat().st_size
    assert f"{size:,} bytes in int8 (" in out
    assert all((new / name).stat().st_size < (graphs / name).stat().st_size for name in FILES)
    assert not [path for path in new.iterdir() if path.is_dir()]
    exec(program(new, "a dog sees a ball ."), {})
    assert capfd.readouterr().out.strip()


def test_what_differs_is_refused_and_not_written(export, trained, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(f"{MODULE}.largest_difference", lambda *_: Difference(math.nan, math.nan))
    words = "to=onnx", f"bundle={trained / 'model'}", f"output={tmp_path / 'new'}"
    assert "log-probabilities differ from the bundle's by nan" in refusal(capfd, "export", *words)
    text = refusal(capfd, "export", *words, "quantize=float16")
    assert text == "to=onnx does not support quantize=float16; use quantize=int8"
    assert [*tmp_path.iterdir()] == []  # nor a directory for it


@pytest.mark.parametrize(("factor", "agrees"), [(1, False), (20, True)])
def test_rounding_of_large_logits_is_no_difference(trained, tmp_path, monkeypatch, factor, agrees):
    model = seqattn.load(trained / "model").model
    table = model.head.linear.weight.detach().clone() * factor
    model.head.linear.weight = torch.nn.Parameter(table)

    class Rounded:
        """The model itself, with the rounding of logits of 41 in one of them."""

        def __init__(self, directory, source):
            self.state = model.start(model.encode(torch.from_numpy(source)))

        def logits(self, ids):
            found = model.log_probabilities(torch.from_numpy(ids), self.state).log_probabilities
            found[:, :, 5] += 1.6e-4
            return found.numpy()

    monkeypatch.setattr(f"{MODULE}.OnnxDecoder", Rounded)
    with torch.inference_mode():
        difference = largest_difference(model, tmp_path)
    assert difference.nats == pytest.approx(1.6e-4, rel=0.5)
    assert (difference.share < 1) == agrees
