"""The benchmark of decoders at once and step by step: what it times is what it says."""

from functools import partial

import torch

from benchmarks import parallel
from benchmarks.parallel import ParallelSuite
from seqattn.attention.alignment import Bahdanau
from seqattn.models.base import Seq2SeqModel
from tests.builders import heads
from tests.models.recurrents import make_recurrent


def test_each_attention_has_a_row_for_every_length(capsys):
    attentions = {"mha": heads(2, 2), "bahdanau": Bahdanau}
    suite = partial(ParallelSuite, attentions=attentions, dim=16, layers=1, batch_size=2, rounds=1)
    rows = suite(lengths=[3, 5]).run()
    assert [(row["attention"], row["tokens"]) for row in rows] == [
        (name, length) for length in (3, 5) for name in attentions
    ]
    for row in rows:
        slower = row["steps (ms)"].median / row["at once (ms)"].median
        assert abs(row["steps / at once"].median - slower) < 1e-6 * slower
    assert "step by step" in capsys.readouterr().out


@torch.no_grad()
def test_a_step_is_a_call_with_one_token_and_all_at_once_is_one_call(monkeypatch):
    calls, decode = [], Seq2SeqModel.decode

    def counted(self, ids, state):
        calls.append(ids.shape[1])
        return decode(self, ids, state)

    monkeypatch.setattr(Seq2SeqModel, "decode", counted)
    model, ids = make_recurrent(), torch.full((2, 4), 5)
    for way in (4, 1):
        assert parallel._decoded(model, model.encode(ids), ids, way, 0).units == 8
    assert calls == [4, 1, 1, 1, 1]
