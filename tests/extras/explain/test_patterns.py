"""Pictures of patterns: what is drawn is what attentions see and positions add."""

from functools import partial

import pytest
import torch

from seqattn.__main__ import main
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.extras.explain.patterns import Patterns
from seqattn.settings.choices import choices
from tests.builders import load_choice
from tests.models.recurrents import ALIGNMENTS

N = 12
PLACES = torch.arange(N)
GRID = "seqattn.extras.explain.patterns._grid"


def drawn(name, monkeypatch, **kernel):
    """The patterns of an attention by side, each (T, S)."""
    kept = {}
    monkeypatch.setattr(
        "seqattn.extras.explain.patterns._grid", lambda sides, _: kept.update(sides)
    )
    make = load_choice("attention", name)
    make = partial(make, kernel=partial(make.keywords["kernel"], **kernel))
    Patterns(output="", attention=make, length=N)._attentions()
    return {side: next(iter(panels.values())) for side, panels in kept.items()}


def test_a_window_is_a_band_beside_the_keys_that_all_see(monkeypatch):
    seen = drawn("sliding_window", monkeypatch, window=2, global_tokens=1)
    band = (PLACES[:, None] - PLACES).abs() <= 2
    band[0], band[:, 0] = True, True
    assert torch.equal(seen["encoder"], band.float())
    assert torch.equal(seen["decoder"], band.float().tril())


def test_heads_that_see_different_keys_are_counted(monkeypatch):
    seen = drawn("strided", monkeypatch, stride=3, split_heads=True)
    assert set(seen["decoder"].unique().tolist()) == {0.0, 0.5, 1.0}


def test_equal_patterns_share_a_panel_and_each_side_says_what_it_lacks(monkeypatch):
    kept = []
    monkeypatch.setattr(GRID, lambda *given: kept.extend(given))
    Patterns(output="")._attentions()
    sides, notes = kept
    for side, panels in sides.items():
        assert next(iter(panels)).startswith("additive, differential, gqa")
        patterns = list(panels.values())
        assert not any(torch.equal(a, b) for n, a in enumerate(patterns) for b in patterns[:n])
        told = {
            name for part in notes[side].split("; ") for name in part.split(": ")[1].split(", ")
        }
        drawn = {name for names in panels for name in names.split(", ")}
        assert drawn | {*told} == {*choices("attention")} - {*ALIGNMENTS}
        assert not drawn & {*told}


def curves(name, **options):
    make = partial(load_choice("position", name), **options)
    title, scores = Patterns(output="", position=make, distance=5)._curves(name, make)
    return title, scores - scores[:, 5:6]  # of a query and itself


def test_the_scores_of_positions_are_their_terms_by_distance():
    distances = torch.arange(-5, 6).abs()
    title, alibi = curves("alibi")
    assert title == "alibi"
    slopes = torch.tensor([2.0**-n for n in (2, 4, 6, 8)])
    torch.testing.assert_close(alibi, -slopes[:, None] * distances, atol=2e-4, rtol=0)
    assert not curves("none")[1].any()
    rope = curves("rope")[1]
    assert (rope[:, 4] < -1e-3).all()
    torch.testing.assert_close(rope, rope.flip(1), atol=2e-4, rtol=0)
    title, shaw = curves("shaw", max_distance=2)
    assert title == "shaw (random table)"
    assert torch.equal(shaw[:, :3], shaw[:, :1].expand(-1, 3))  # clipped
    assert shaw[:, 3:8].diff().abs().min() > 1e-3


@pytest.mark.parametrize(
    ("words", "files", "lines"),
    [
        (
            ["attention=sliding_window", "attention.kernel.window=2"],
            ["attentions.png"],
            [],
        ),
        (["position=t5"], ["positions.png"], []),
        (["attention=[xca,mha]"], ["attentions.png"], ["attention 1: no picture, as it has no we"]),
    ],
)
def test_the_command_draws_what_was_chosen(words, files, lines, tmp_path, capfd):
    assert main(["patterns", f"output={tmp_path}/out", "length=12", "distance=8", *words]) == 0
    out = capfd.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("out/*")) == files
    assert all((tmp_path / "out" / name).read_bytes()[:4] == b"\x89PNG" for name in files)
    assert all(line in out for line in lines)


@pytest.mark.parametrize("name", ["xca", "mamba2", "bahdanau"])
def test_a_choice_without_weights_is_refused_if_nothing_else_is_drawn(name, tmp_path, capfd):
    assert main(["patterns", f"output={tmp_path}/out", f"attention={name}"]) == 2
    printed = capfd.readouterr()
    assert "no picture, as it" in printed.out
    assert printed.err == "error: nothing to draw; choose an attention with weights over keys\n"
    assert not (tmp_path / "out").exists()


class Near(SoftmaxKernel):
    """Sees only the keys at its own place."""

    def normalize(self, scores):
        return torch.eye(scores.shape[2]).expand_as(scores)


def test_an_attention_of_ones_own_is_drawn(tmp_path, capfd, monkeypatch):
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text(
        "_target_: seqattn.attention.heads.MultiHeadAttention\n_partial_: true\nnum_heads: 2\n"
        "num_kv_heads: 1\nkernel:\n  _target_: tests.extras.explain.test_patterns.Near\n"
        "  _partial_: true\n"
    )
    kept = {}
    monkeypatch.setattr(
        "seqattn.extras.explain.patterns._grid", lambda sides, _: kept.update(sides)
    )
    words = ["attention=mine", f"output={tmp_path}/out", "--config-dir", str(tmp_path)]
    assert main(["patterns", *words, "length=12"]) == 0, capfd.readouterr().err
    assert torch.equal(kept["encoder"]["Near"], torch.eye(N))
