"""A model whose next token depends on its whole past, as written in a table."""

import hashlib

import torch
from torch import nn

from seqattn.models.base import Memory, Seq2SeqModel
from seqattn.models.head import DecoderOutput, Head
from seqattn.tokens import BOS, PAD


class TableModel(Seq2SeqModel):
    """Logits drawn once for every pair of a source and a prefix, or given by a function.

    Args:
        size: vocabulary V.
        logits: from (source tuple, prefix tuple without BOS) to V numbers; None for random ones.
        scale: spread of the random logits.
    """

    def __init__(self, size, logits=None, scale=2.0, longest=None):
        super().__init__()
        self.size, self.scale, self.logits = size, scale, logits or self.random_logits
        self.head = Head(size, size, nn.Parameter(torch.eye(size)))
        self.max_source_length = self.max_target_length = longest
        self.states = []

    def random_logits(self, source, prefix):
        digest = hashlib.sha256(repr((source, prefix)).encode()).digest()
        draw = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
        return (torch.randn(self.size, generator=draw) * self.scale).tolist()

    def following(self, source, prefix):
        """Log-probabilities of every token after a prefix, PAD forbidden: a list of V floats."""
        scores = torch.tensor(self.logits(tuple(source), tuple(prefix))).double().log_softmax(0)
        scores[PAD] = -torch.inf
        return scores.tolist()

    def encode(self, ids):
        return Memory(torch.zeros(*ids.shape, self.size), ids != PAD, ids)

    def start(self, memory, beams=1, cached=True):
        sources = [tuple(token for token in row if token != PAD) for row in memory.ids.tolist()]
        self.states.append(TableState(sources, beams))
        return self.states[-1]

    def features(self, ids, state, teacher_forcing=1.0, need_weights=False):
        beams = state.beams
        assert ids.shape == (len(state.sources) * beams, 1)
        state.rows_decoded.append(ids.shape[0])
        for row, token in enumerate(ids[:, 0].tolist()):
            state.histories[row // beams][row % beams] += (token,)
        assert all(h[0] == BOS for sentence in state.histories for h in sentence)
        rows = [
            self.logits(source, history[1:])
            for source, sentence in zip(state.sources, state.histories)
            for history in sentence
        ]
        return DecoderOutput(torch.tensor(rows, dtype=torch.float32)[:, None])


class TableState:
    """Every beam's tokens, and a record of what was asked of it."""

    source_tokens = None

    def __init__(self, sources, beams):
        self.sources, self.beams = sources, beams
        self.histories = [[()] * beams for _ in sources]
        self.rows_decoded, self.kept = [], []

    def reorder(self, index):
        assert index.shape == (len(self.sources), self.beams)
        self.histories = [
            [sentence[beam] for beam in row]
            for sentence, row in zip(self.histories, index.tolist())
        ]

    def keep(self, sentences):
        self.kept.append(sentences.tolist())
        self.sources = [self.sources[row] for row in sentences.tolist()]
        self.histories = [self.histories[row] for row in sentences.tolist()]

    @property
    def nbytes(self):
        return 0
