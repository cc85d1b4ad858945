"""A model that copies says words that no training target ever held; one that does not cannot."""

import pytest
import torch

from seqattn.data.batch import Batch
from seqattn.generation import Generator, GreedySearch
from seqattn.models.recurrent import RecurrentConfig
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.ops.cross_entropy import LossTerms
from seqattn.positions import SinusoidalPosition
from seqattn.tokens import BOS, EOS
from seqattn.training.tasks.seq2seq import Optimization, Seq2SeqTask
from tests.builders import heads, padded
from tests.models.recurrents import ALIGNMENTS

COMMON, RARE, UNSEEN, LONGEST = 12, 200, 250, 5
"""Ids below each: words, names of the training set, and names of the test alone."""


def sentences(count, names, draw):
    """A few words around a name, to be said again."""
    rows = []
    for length in torch.randint(1, LONGEST, (count,), generator=draw).tolist():
        row = torch.randint(4, COMMON, (length,), generator=draw).tolist()
        place = int(torch.randint(0, length + 1, (1,), generator=draw))
        row.insert(place, int(torch.randint(*names, (1,), generator=draw)))
        rows.append(row)
    return rows


def tiny(family, copy):
    torch.manual_seed(0)
    if family == "recurrent":
        config = RecurrentConfig(dim=32, dropout=0.0, copy=copy)
        return config.build(UNSEEN, UNSEEN, True, ALIGNMENTS["luong_general"])
    config = TransformerConfig(dim=32, ffn_dim=64, dropout=0.0, copy=copy)
    slots = Slots([heads()], [heads()], [heads()], SinusoidalPosition)
    return config.build(UNSEEN, UNSEEN, True, slots)


def train(model, steps=300):
    draw = torch.Generator().manual_seed(1)
    task = Seq2SeqTask(model, Optimization(None, None, terms=LossTerms(label_smoothing=0.1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, steps, pct_start=0.2)
    for _ in range(steps):
        rows = sentences(48, (COMMON, RARE), draw)
        source, given = padded([[*r, EOS] for r in rows]), padded([[BOS, *r] for r in rows])
        sums = task.loss(Batch(source, given, source, torch.arange(48), 0, 0))
        optimizer.zero_grad()
        (sums.smoothed / sums.tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    "family", [pytest.param("transformer", marks=pytest.mark.exhaustive), "recurrent"]
)
def test_copying_says_names_that_training_never_said(family):
    rows = sentences(200, (RARE, UNSEEN), torch.Generator().manual_seed(2))
    shares = []
    for copy in (True, False):
        model = tiny(family, copy)
        train(model)
        found = Generator(model, GreedySearch()).generate([[*row, EOS] for row in rows])
        named = [max(row) in best.ids for row, (best,) in zip(rows, found)]  # the highest id
        shares.append(sum(named) / len(rows))
    assert shares[0] >= 0.6
    assert shares[1] <= 0.05
