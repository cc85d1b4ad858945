"""Recurrent models: this package's, a textbook's, and Joey NMT's."""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.transformer_models import TiedEmbedding
from seqattn.attention.alignment import AlignmentFactory, Bahdanau, Luong
from seqattn.models.recurrent import Recurrent, RecurrentConfig
from seqattn.tokens import PAD

AlignmentName = Literal["bahdanau", "luong_general", "luong_concat"]
_ALIGNMENTS: dict[str, AlignmentFactory] = {
    "bahdanau": Bahdanau,
    "luong_general": partial(Luong, score="general"),
    "luong_concat": partial(Luong, score="concat"),
}
_JOEY_SCORES = {"luong_concat": "bahdanau", "luong_general": "luong"}
"""Joey NMT's names of our attentions; both in Luong's order."""


@dataclass(frozen=True)
class RecurrentShape:
    """One-layer LSTMs, with a bidirectional encoder and one table for both sides and the output.

    Args:
        vocabulary: V, of both sides.
        dim: width D of everything; even.
        attention: name of the alignment; the order of steps is the published one.
        input_feeding: use Luong's input feeding.
        dropout: share dropped in training, on embeddings and features.
    """

    vocabulary: int
    dim: int = 256
    attention: AlignmentName = "bahdanau"
    input_feeding: bool = False
    dropout: float = 0.3

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.attention}, fed" if self.input_feeding else self.attention


def own_recurrent(shape: RecurrentShape) -> Recurrent:
    """Build this package's recurrent model of that shape: `model=rnn`."""
    config = RecurrentConfig(
        dim=shape.dim, input_feeding=shape.input_feeding, dropout=shape.dropout
    )
    alignment = _ALIGNMENTS[shape.attention]
    return config.build(shape.vocabulary, shape.vocabulary, True, alignment)


class TextbookRecurrent(nn.Module):
    """Encoder, decoder cell and attention as in tutorials, computing the same function as ours.

    Each step of a Python loop projects the source's keys, embeds the word and computes logits.
    """

    def __init__(self, shape: RecurrentShape) -> None:
        super().__init__()
        dim, self.input_feeding = shape.dim, shape.input_feeding
        self.before = shape.attention == "bahdanau"
        self.embedding = TiedEmbedding(shape.vocabulary, shape.dim)
        self.dropout = nn.Dropout(shape.dropout)
        self.encoder = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(dim, dim)
        self.cell_bridge = nn.Linear(dim, dim)
        self.cell = nn.LSTMCell(2 * dim if self.before or shape.input_feeding else dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        additive = shape.attention != "luong_general"
        self.query = nn.Linear(dim, dim, bias=False) if additive else None
        self.v = nn.Linear(dim, 1, bias=False) if additive else None
        self.merge = nn.Linear((3 if self.before else 2) * dim, (2 if self.before else 1) * dim)

    def attend(self, state: Tensor, outputs: Tensor, real: Tensor) -> Tensor:
        """Return the context (B, D) of a state (B, D)."""
        keys = self.key(outputs)
        if self.query is not None and self.v is not None:
            scores = self.v(torch.tanh(keys + self.query(state)[:, None])).squeeze(2)
        else:
            scores = torch.bmm(keys, state[:, :, None]).squeeze(2)
        weights = scores.masked_fill(~real, -1e9).softmax(dim=1)
        return torch.bmm(weights[:, None], outputs).squeeze(1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V) of complete targets (B, T), begin first, given sources (B, S)."""
        real = source != PAD
        words = self.dropout(self.embedding(source))
        packed, (last, _) = self.encoder(
            pack_padded_sequence(words, real.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        )
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        ends = torch.cat((last[0], last[1]), dim=1)
        hidden, cell = torch.tanh(self.bridge(ends)), self.cell_bridge(ends)
        features = torch.zeros_like(hidden)
        logits = []
        for t in range(target.shape[1]):
            word = self.dropout(self.embedding(target[:, t]))
            if self.before:
                context = self.attend(hidden, outputs, real)
                hidden, cell = self.cell(torch.cat((word, context), dim=1), (hidden, cell))
                pairs = self.merge(torch.cat((hidden, word, context), dim=1))
                features = pairs.view(len(pairs), -1, 2).max(dim=2).values
            else:
                x = torch.cat((word, features), dim=1) if self.input_feeding else word
                hidden, cell = self.cell(x, (hidden, cell))
                context = self.attend(hidden, outputs, real)
                features = torch.tanh(self.merge(torch.cat((context, hidden), dim=1)))
            features = self.dropout(features)
            logits.append(self.embedding.logits(features))
        return torch.stack(logits, dim=1)


def has_joey(shape: RecurrentShape) -> bool:
    """Return True if `joeynmt` is installed and has such a model."""
    return find_spec("joeynmt") is not None and shape.attention in _JOEY_SCORES


class JoeyRecurrent(nn.Module):
    """Joey NMT's model (Kreutzer et al. 2019, arXiv 1907.12484) with one table for all.

    It has one bridge for the state and the cell of the LSTM, where ours has two.
    """

    def __init__(self, shape: RecurrentShape) -> None:
        super().__init__()
        self.embedding = TiedEmbedding(shape.vocabulary, shape.dim)
        encoders, decoders = (import_module(f"joeynmt.{part}coders") for part in ("en", "de"))
        common = {"rnn_type": "lstm", "emb_size": shape.dim, "emb_dropout": shape.dropout}
        self.encoder = encoders.RecurrentEncoder(hidden_size=shape.dim // 2, **common)
        self.decoder = decoders.RecurrentDecoder(
            hidden_size=shape.dim, encoder=self.encoder, attention=_JOEY_SCORES[shape.attention],
            vocab_size=shape.vocabulary, hidden_dropout=shape.dropout,
            input_feeding=shape.input_feeding, **common,
        )  # fmt: skip
        self.decoder.output_layer.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V) of complete targets (B, T), begin first, given sources (B, S)."""
        lengths = (source != PAD).sum(dim=1)
        order = lengths.argsort(descending=True)  # its packing requires this order
        source, lengths, words = source[order], lengths[order], self.embedding(target[order])
        mask = (source != PAD)[:, None]
        outputs, last = self.encoder(self.embedding(source), lengths, mask)
        logits = self.decoder(words, outputs, last, mask, unroll_steps=target.shape[1])[0]
        result: Tensor = logits[order.argsort()]
        return result
