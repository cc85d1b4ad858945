"""Base of span models: word features, and attention from context to question."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import masked_softmax
from seqattn.attention.base import Attention, AttentionFactory
from seqattn.attention.masks import Mask
from seqattn.checking import Dropout as Share
from seqattn.errors import UserError
from seqattn.extras.answers.characters import CharacterCNN, at_words
from seqattn.extras.answers.span_base import SpanInput, SpanModel, SpanScores
from seqattn.extras.answers.span_head import SpanHead
from seqattn.extras.answers.trilinear import TrilinearMatch
from seqattn.layers.embedding import Embedding
from seqattn.ops.layers import Linear
from seqattn.positions.base import Position, Stack
from seqattn.tokens import PAD, UNK

MATCHES, CLUES = 4, 17
"""Numbers of features per token: first, whether its word, lowercased word and stem occur in the
question, and the word's frequency in the context; then further clues from the data."""


class WordMatch(nn.Module):
    """Features of DrQA's document reader (Chen et al. 2017, arXiv 1704.00051, section 3.2.1).

    Each token's embedding is concatenated with its word's match features and with the question's
    embeddings averaged by similarity. Time S*Q*D.

    Args:
        dim: width D of the embeddings.
        clues: also use features of word shapes and surrounding words.
    """

    def __init__(self, dim: int, clues: bool = False) -> None:
        super().__init__()
        self.alike = Linear(dim, dim)
        self.features = MATCHES + CLUES * clues
        self.width = 2 * dim + self.features

    def forward(self, context: Tensor, question: Tensor, asking: Tensor, match: Tensor) -> Tensor:
        """Map embeddings of a window (B, S, D) and its question (B, Q, D) to (B, S, `width`).

        `asking` (B, Q) is True on tokens, `match` (B, S, 21) is that of the batch.
        """
        mine, theirs = self.alike(context).relu(), self.alike(question).relu()
        weights = masked_softmax(mine @ theirs.transpose(1, 2), asking[:, None])  # (B, S, Q)
        alike = weights.to(question.dtype) @ question
        return torch.cat((context, alike, match[..., : self.features].to(context.dtype)), dim=2)


@dataclass(frozen=True, kw_only=True)
class ReadingShape:
    """Settings of word features and span scores, for any encoder.

    Args:
        word_match: use features of exact matches with the question; see `WordMatch`.
        word_clues: also use features of word shapes, and of matches of surrounding words.
        characters: also represent words by their characters; see `CharacterCNN`.
        hidden_words: share of the distinct words of a question and its context that are replaced
            with the unknown word in training, at all positions (Iyyer et al. 2015); features of
            `word_match` are unaffected.
        matching: interaction of context and question: `attention`, `bidaf` or `qanet`.
        joint_spans: score spans jointly; see `SpanPairs`.
    """

    word_match: bool = True
    word_clues: bool = False
    characters: bool = False
    hidden_words: Share = 0.0
    matching: Literal["attention", "bidaf", "qanet"] = "attention"
    joint_spans: bool = False

    def __post_init__(self) -> None:
        if self.word_clues and not self.word_match:
            raise UserError("model.word_clues=true needs model.word_match=true")


class MatchingModel(SpanModel):
    """Base of span models that attend from the encoded context to the encoded question.

    Each context token is concatenated with what it attends to in the question, and their product,
    as in BiDAF (Seo et al. 2017, arXiv 1611.01603, eq. 4).

    Args:
        shape: settings of word features and span scores.
        dim: width D.
        attention: factory of the attention from context to question.
    """

    output_layers = ("head",)
    embedding: Embedding
    dropout: nn.Module

    def __init__(self, shape: ReadingShape, dim: int, attention: AttentionFactory) -> None:
        super().__init__()
        self.hidden_words = shape.hidden_words
        self.word_match = WordMatch(dim, shape.word_clues) if shape.word_match else None
        self.characters = CharacterCNN(dim) if shape.characters else None
        self.question_attention: Attention | None = None
        self.trilinear: TrilinearMatch | None = None
        if shape.matching == "attention":
            self.question_attention = attention(query_dim=dim, memory_dim=dim)
        else:
            self.trilinear = TrilinearMatch(dim, shape.matching)
        self.join = Linear(3 * dim if self.trilinear is None else self.trilinear.width, dim)
        self.head = SpanHead(dim, shape.joint_spans)

    @abstractmethod
    def read_apart(self, batch: SpanInput, own: Mask, mask: Mask) -> tuple[Tensor, Tensor]:
        """Return features of questions (B, Q, D), with mask `own`, and of contexts (B, S, D)."""

    @abstractmethod
    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        """Map question-aware context features (B, S, D) to the features that are scored."""

    def forward(self, batch: SpanInput) -> SpanScores:
        asking, real = batch.question != PAD, batch.context != PAD
        question_mask, mask = Mask.full(asking), Mask.full(real)
        question, context = self.read_apart(batch, question_mask, mask)
        if self.trilinear is not None:
            attended = self.trilinear(context, question, real, asking)
        else:
            attended = self._attended(question, context, question_mask, mask)
        return self.head(self.read_again(self.join(attended), mask), real, question, asking)

    def _attended(self, question: Tensor, context: Tensor, own: Mask, mask: Mask) -> Tensor:
        """Concatenate contexts (B, S, D), what they attend to, and their product: (B, S, 3*D)."""
        assert self.question_attention is not None
        across = replace(own, query_positions=mask.query_positions, real_queries=mask.real)
        projected, no_position = self.question_attention.project(question), Position(Stack(1, 1))
        attended = self.question_attention(context, projected, across, no_position).output
        return torch.cat((context, attended, context * attended), dim=2)

    def embedded(self, batch: SpanInput, question_mask: Mask, mask: Mask) -> tuple[Tensor, Tensor]:
        """Return the embeddings of questions (B, Q, D) and contexts (B, S, D)."""
        ids, letters = [batch.question, batch.context], batch.characters
        words = batch.question_words, batch.context_words
        if self.training and self.hidden_words:
            hidden = torch.rand(letters.shape[:2], device=letters.device) < self.hidden_words
            hidden[:, 0] = False
            letters = letters.masked_fill(hidden[..., None], 0)
            ids = [torch.where(hidden.gather(1, of), UNK, x) for x, of in zip(ids, words)]
        question = self.embedding(ids[0], question_mask.query_positions)
        context = self.embedding(ids[1], mask.query_positions)
        if self.characters is None:
            return question, context
        spelt = self.dropout(self.characters(letters))
        return question + at_words(spelt, words[0]), context + at_words(spelt, words[1])
