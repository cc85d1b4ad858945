"""The model on one page computes what the models of seqattn compute."""

import re

import pytest
import torch
from safetensors.torch import load_file

import seqattn
from seqattn.generation import BeamSearch
from seqattn.tokens import BOS, EOS
from tests.pages import ROOT, program

PROGRAM = ROOT / "docs" / "course" / "annotated.py"


@pytest.fixture(scope="module")
def page():
    return program("course/annotated.py")


def test_a_bundle_gives_the_same_log_probabilities_and_outputs(page, trained, corpus):
    bundle = seqattn.load(trained / "model")
    weights = load_file(trained / "model" / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for weight in weights.values():  # after so few steps all outputs would be alike
        weight += 0.5 * torch.randn(weight.shape, generator=generator)
    weights["source_embedding.table.weight"][EOS] *= -1.2  # some end, others reach the limit
    bundle.model.load_state_dict(weights, strict=False)
    weights["table.weight"] = weights.pop("source_embedding.table.weight")
    pieces, dim = weights["table.weight"].shape
    model = page.Transformer(pieces, dim, heads=4, inner=20, layers=1)
    model.load_state_dict(weights)
    model.eval()
    sources = [ids for [ids] in bundle.encode((corpus / "test.en").read_text().splitlines())]
    for beams in (1, 3):
        search = bundle.generator(BeamSearch(beam_size=beams))
        outputs = [list(best.ids) for best, *_ in search.generate([[*ids] for ids in sources])]
        assert [page.generate(model, list(ids)[:-1], beams) for ids in sources] == outputs
    lengths = sorted(map(len, outputs))
    assert lengths[0] < 15 < lengths[-1]
    for ids, output in zip(sources, outputs):
        source, target = torch.tensor([[*ids]]), torch.tensor([[BOS, *output]])
        with torch.no_grad():
            mine = model.decode(target, model.encode(source))
            theirs = bundle.model(source, target).log_softmax(dim=-1)
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_training_lowers_the_loss(page, capsys):
    torch.manual_seed(0)
    pairs = [([4, 5, 6], [6, 5, 4]), ([5, 4], [4, 5])]
    model = page.Transformer(8, dim=16, heads=2, inner=16, layers=1, dropout=0.0)
    before = page.loss_of(model, pairs).item()
    page.train(model, [pairs] * 100, rate=0.01, warmup=10)
    assert page.loss_of(model, pairs).item() < before / 2
    assert "step 100: loss" in capsys.readouterr().out
    assert [page.generate(model, source) for source, _ in pairs] == [said for _, said in pairs]


def test_it_is_one_page_of_plain_torch_that_names_files_of_seqattn():
    text = PROGRAM.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    assert not re.search(r"^ *(?:from|import) seqattn", text, re.MULTILINE)
    named = [file for line in re.findall(r"# In seqattn: (.*)", text) for file in line.split(", ")]
    assert len(named) > 10
    assert [file for file in named if not (ROOT / "seqattn" / file).is_file()] == []
