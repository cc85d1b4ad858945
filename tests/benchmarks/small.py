"""Contestants of a tiny shape, and batches of random sentences."""

from pathlib import Path

import torch

from benchmarks.contestants import PEERS
from benchmarks.corpus import Corpus
from benchmarks.transformer_models import Shape
from seqattn.data.batch import collate

SHAPE = Shape(vocabulary=19, dim=24, layers=2, ffn_dim=20, heads=4, dropout=0.0)


def random_rows(count, longest, seed=0):
    """Rows of ordinary ids, of every length up to `longest`, the end mark last."""
    source = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        length = 1 + number % (longest - 1)
        ids = torch.randint(4, SHAPE.vocabulary, (length,), generator=source)
        rows.append([*ids.tolist(), 3])
    return rows


def copying_batches(count, rows=5, longest=7):
    """Batches whose targets are their sources."""
    found = []
    for number in range(count):
        sources = random_rows(rows, longest, seed=number)
        found.append(collate(sources, sources, range(rows)))
    return tuple(found)


def assert_same_steps(plain, own):
    """Two loops with the same weights train on three batches, and then say the same."""
    batches = copying_batches(3)
    plain.optimizer = torch.optim.AdamW(
        plain.model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0
    )
    plain.run(batches)
    own.run(batches)
    with torch.no_grad():
        batch = batches[0]
        theirs = plain.model.eval()(batch.source, batch.target_input)
        ours = own.model.eval()(batch.source, batch.target_input)
    real = batch.target_output != 0
    torch.testing.assert_close(ours[real], theirs[real], atol=2e-4, rtol=1e-3)


def stand_in(monkeypatch):
    """Every contestant is played by `standin.py`, whose processes start at once."""
    file = str(Path(__file__).parent / "standin.py")
    for name, peer in PEERS.items():
        monkeypatch.setitem(PEERS, name, peer._replace(file=file))


def shape_of(vocabulary):
    """The tiny shape, whatever the vocabulary."""
    assert vocabulary == SHAPE.vocabulary
    return SHAPE


class CopyingText(Corpus):
    """A corpus of random sentences whose targets are their sources."""

    def __init__(self):
        pass

    def batches(self, max_tokens, count):
        return copying_batches(count), SHAPE.vocabulary

    def sentences(self, count):
        return random_rows(count or 9, 7), SHAPE.vocabulary
