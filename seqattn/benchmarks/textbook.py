"""The recurrent model that textbooks write: a Python loop, everything made anew at each step."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqattn.benchmarks.shape import RecurrentShape
from seqattn.models.base import PAD


class TextbookRecurrent(nn.Module):
    """Encoder, decoder cell and attention as tutorials put them, the same function as ours.

    At each step the source's keys are projected, the word is embedded and the vocabulary's logits
    are made. Args: shape: as ours.
    """

    def __init__(self, shape: RecurrentShape) -> None:
        super().__init__()
        dim, self.shape = shape.dim, shape
        self.before = shape.attention == "bahdanau"
        self.embedding = nn.Embedding(shape.vocabulary, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
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
        self.output = nn.Linear(dim, shape.vocabulary, bias=False)
        self.output.weight = self.embedding.weight

    def embed(self, ids: Tensor) -> Tensor:
        """(...) -> (..., D)."""
        out: Tensor = self.dropout(self.embedding(ids) * self.shape.dim**0.5)
        return out

    def attend(self, state: Tensor, outputs: Tensor, real: Tensor) -> Tensor:
        """The context (B, D) of a state (B, D)."""
        keys = self.key(outputs)
        if self.query is not None and self.v is not None:
            scores = self.v(torch.tanh(keys + self.query(state)[:, None])).squeeze(2)
        else:
            scores = torch.bmm(keys, state[:, :, None]).squeeze(2)
        weights = scores.masked_fill(~real, -1e9).softmax(dim=1)
        return torch.bmm(weights[:, None], outputs).squeeze(1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of whole targets (B, T), begin first, given sources (B, S)."""
        real = source != PAD
        packed = pack_padded_sequence(
            self.embed(source), real.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        packed, (last, _) = self.encoder(packed)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        ends = torch.cat((last[0], last[1]), dim=1)
        hidden, cell = torch.tanh(self.bridge(ends)), self.cell_bridge(ends)
        features = torch.zeros_like(hidden)
        logits = []
        for t in range(target.shape[1]):
            word = self.embed(target[:, t])
            if self.before:
                context = self.attend(hidden, outputs, real)
                hidden, cell = self.cell(torch.cat((word, context), dim=1), (hidden, cell))
                pairs = self.merge(torch.cat((hidden, word, context), dim=1))
                features = pairs.view(len(pairs), -1, 2).max(dim=2).values
            else:
                x = torch.cat((word, features), dim=1) if self.shape.input_feeding else word
                hidden, cell = self.cell(x, (hidden, cell))
                context = self.attend(hidden, outputs, real)
                features = torch.tanh(self.merge(torch.cat((context, hidden), dim=1)))
            features = self.dropout(features)
            logits.append(self.output(features))
        return torch.stack(logits, dim=1)
