"""Kernels of one's own: what they override is used in every pass, and one command tries them."""

import re
import subprocess
import sys
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.bigbird import BigBirdKernel
from seqattn.attention.kernels.entmax import EntmaxKernel
from seqattn.attention.kernels.fixed import FixedKernel
from seqattn.attention.kernels.ring import RingKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.streaming import StreamingKernel
from seqattn.attention.kernels.strided import StridedKernel
from seqattn.attention.kernels.window import SlidingWindowKernel
from seqattn.positions import Position
from tests.builders import DIM, HEADS, causal_mask, full_mask, make_attention, make_position
from tests.pages import ROOT
from tests.tolerance import close

B, T = 1, 140  # more than any kernel writes out for being short


class Sigmoids:
    """Each weight by itself."""

    def normalize(self, scores):
        return scores.sigmoid()


class Sharper:
    """The squares of weights."""

    def weights(self, *args):
        return super().weights(*args).square()


class Louder:
    """Scores times 3."""

    def _products(self, *args):
        return 3 * super()._products(*args)


class Doubled:
    """Twice the context of the weights."""

    def _weighted(self, *args):
        return 2 * super()._weighted(*args)


class Shifted:
    """One more for each key."""

    def value_term(self, weights, mask, position):
        return weights.sum(dim=-1, keepdim=True).expand(*weights.shape[:-1], DIM // HEADS)


CHANGES = (Sigmoids, Sharper, Louder, Doubled, Shifted)
PARENTS = {
    SoftmaxKernel: {},
    EntmaxKernel: {},
    RingKernel: {},
    SlidingWindowKernel: {"window": 3, "global_tokens": 1},
    StreamingKernel: {"window": 3, "sinks": 2},
    StridedKernel: {"stride": 4},
    FixedKernel: {"stride": 4, "summary": 1},
    BigBirdKernel: {"block_size": 4},
}


def attention_of(kernel, options):
    factory = partial(
        MultiHeadAttention, num_heads=HEADS, num_kv_heads=2, kernel=partial(kernel, **options)
    )
    return make_attention(factory)


def by_its_weights(attention, x, mask, position):
    """The output that `capture`, told to use the weights that it shows, makes of them."""
    attention.kernel.edits = (lambda weights, visible: weights,)
    out = attention.mix(x, mask, position)
    attention.kernel.edits = ()
    return out.detach()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("parent", PARENTS)
def test_what_a_subclass_overrides_is_used_in_every_pass(parent, change):
    attention = attention_of(type("Own", (change, parent), {}), PARENTS[parent])
    plain, position = attention_of(parent, PARENTS[parent]), make_position(Position)
    abilities = attention.abilities
    for make in [full_mask] * abilities.bidirectional + [causal_mask] * abilities.causal:
        x, mask = torch.randn(B, T, DIM), make(torch.ones(B, T, dtype=torch.bool))
        expected = by_its_weights(attention, x, mask, position)
        assert (expected - plain.mix(x, mask, position)).abs().max() > 0.1
        for training, learning in product((True, False), repeat=2):
            attention.train(training)
            with torch.set_grad_enabled(learning):
                got = attention.mix(x, mask, position)
            close(got, expected, 5e-5)


def test_a_ring_over_several_ranks_refuses_other_weights(monkeypatch):
    group = SimpleNamespace(size=lambda: 2)
    monkeypatch.setattr("seqattn.attention.kernels.ring.split_group", lambda: group)
    attention, x = attention_of(type("Own", (Sigmoids, RingKernel), {}), {}), torch.randn(B, 4, DIM)
    with pytest.raises(AssertionError, match="need unsplit sequences"):
        attention.mix(x, full_mask(torch.ones(B, 4, dtype=torch.bool)), make_position(Position))


def test_what_no_subclass_changes_stays_fused():
    assert not any(kernel.written_out for kernel in PARENTS if issubclass(kernel, SoftmaxKernel))
    assert not type("Renamed", (SoftmaxKernel,), {}).written_out


@pytest.mark.parametrize("change", [Sigmoids, Sharper])
def test_weights_of_ones_own_count_as_a_distribution_only_where_it_says_so(change):
    assert not type("Own", (change, SoftmaxKernel), {}).abilities.copies
    said = {"abilities": SoftmaxKernel.abilities}
    assert type("Own", (change, SoftmaxKernel), said).abilities.copies
    assert not type("Heir", (type("Own", (change, SoftmaxKernel), {}),), {}).abilities.normalized
    assert SoftmaxKernel.abilities.normalized
    assert EntmaxKernel.abilities.normalized


FAITHFUL = """
from seqattn.attention.kernels.softmax import SoftmaxKernel

class Sigmoids(SoftmaxKernel):
    def normalize(self, scores):
        return scores.sigmoid()

class Faithless(Sigmoids):
    _context = SoftmaxKernel._context  # as if nothing were overridden

class Boastful(Sigmoids):
    abilities = SoftmaxKernel.abilities  # whose weights sum to 1
"""
CHOICE = """
defaults:
  - mha
  - _self_
num_heads: 8
dropout: 0.1
kernel:
  _target_: mine_to_try.NAME
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What the laws say of the attentions of a folder elsewhere: passed or failed, by the test."""
    home = tmp_path_factory.mktemp("own")
    (home / "mine_to_try.py").write_text(FAITHFUL)
    (home / "conf" / "attention").mkdir(parents=True)
    for name in ("Sigmoids", "Faithless", "Boastful"):
        text = CHOICE.replace("NAME", name)
        (home / "conf" / "attention" / f"{name.lower()}.yaml").write_text(text)
    laws = str(ROOT / "tests" / "attention" / "test_conformance.py")
    words = [laws, "--config-dir", "conf", "-rA", "--tb=no", "-k", "weights or across or pieces"]
    command = [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    rows = re.findall(r"^(PASSED|FAILED) .*::(test_\w+)\[(\w+)(.*)\]", done.stdout, re.MULTILINE)
    assert rows, done.stdout + done.stderr
    return {(name, test): verdict for verdict, test, name, _ in rows}


def test_the_laws_hold_for_a_kernel_that_lives_elsewhere(verdicts):
    own = [verdict for (name, _), verdict in verdicts.items() if name == "sigmoids"]
    assert own == ["PASSED"] * 4
    assert {name for name, _ in verdicts} == {"sigmoids", "faithless", "boastful"}


def test_they_catch_a_kernel_that_trains_by_other_weights_than_it_shows(verdicts):
    for test in (
        "test_weights_times_values_through_the_projection_make_up_the_output",
        "test_they_do_so_across_to_a_padded_source",
    ):
        assert verdicts["faithless", test] == "FAILED"
        assert verdicts["boastful", test] == "PASSED"


def test_they_catch_a_kernel_whose_weights_do_not_sum_to_1_as_it_says(verdicts):
    test = "test_observed_weights_skip_masked_keys_sum_to_one_and_change_nothing"
    assert verdicts["boastful", test] == "FAILED"
