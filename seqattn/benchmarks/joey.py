"""Joey NMT's recurrent model (Kreutzer et al. 2019, arXiv 1907.12484), where it is installed."""

from importlib import import_module
from importlib.util import find_spec

from torch import Tensor, nn

from seqattn.benchmarks.shape import RecurrentShape
from seqattn.models.base import PAD

SCORES = {"luong_concat": "bahdanau", "luong_general": "luong"}
"""Our attentions that it has, by its names; both in Luong's order."""


def installed() -> bool:
    """Whether `joeynmt` can be imported."""
    return find_spec("joeynmt") is not None


class JoeyRecurrent(nn.Module):
    """Its encoder and decoder between one table for source, target and output.

    It has one bridge for the state and the cell of the LSTM, where ours has two. Args: shape: as
    ours, its attention one of `SCORES`.
    """

    def __init__(self, shape: RecurrentShape) -> None:
        super().__init__()
        dim, self.dim = shape.dim, shape.dim
        self.embedding = nn.Embedding(shape.vocabulary, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.encoder = import_module("joeynmt.encoders").RecurrentEncoder(
            rnn_type="lstm", hidden_size=dim // 2, emb_size=dim, emb_dropout=shape.dropout
        )
        self.decoder = import_module("joeynmt.decoders").RecurrentDecoder(
            rnn_type="lstm",
            emb_size=dim,
            hidden_size=dim,
            encoder=self.encoder,
            attention=SCORES[shape.attention],
            vocab_size=shape.vocabulary,
            emb_dropout=shape.dropout,
            hidden_dropout=shape.dropout,
            input_feeding=shape.input_feeding,
        )
        self.decoder.output_layer.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of whole targets (B, T), begin first, given sources (B, S)."""
        lengths = (source != PAD).sum(dim=1)
        order = lengths.argsort(descending=True)  # as its packing wants them
        source, target, lengths = source[order], target[order], lengths[order]
        mask = (source != PAD)[:, None]
        scale = self.dim**0.5
        outputs, last = self.encoder(self.embedding(source) * scale, lengths, mask)
        words = self.embedding(target) * scale
        logits = self.decoder(words, outputs, last, mask, unroll_steps=target.shape[1])[0]
        result: Tensor = logits[order.argsort()]
        return result
