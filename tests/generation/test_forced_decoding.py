"""Log-probabilities of given targets."""

import pytest
import torch

from seqattn.generation import Generator, LengthLimit, Sampling, forced_decoding
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.forced_decoding import forced_log_probabilities
from seqattn.tokens import EOS
from tests.generation.test_ensemble import SOURCES, members


@pytest.mark.parametrize("made", [*members(), Ensemble(members())])
def test_what_a_search_finds_is_as_likely_when_it_is_given(made, monkeypatch):
    monkeypatch.setattr(forced_decoding, "_AT_ONCE", 20)  # several batches
    search = Sampling(LengthLimit(0.0, 9), n_best=6)
    found = Generator(made, search).generate(SOURCES)
    pairs, expected = [], []
    for source, hypotheses in zip(SOURCES, found):
        for one in hypotheses:
            if len(one.ids) < 9:  # with an end
                pairs.append((source, [*one.ids, EOS]))
                expected.append(one.log_probability)
    assert len({len(target) for _, target in pairs}) > 2
    assert forced_log_probabilities(made, pairs) == pytest.approx(expected, abs=1e-4)
    assert torch.is_grad_enabled()
