"""What span models share: how words are read, and how a context meets its question."""

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
from seqattn.layers.characters import CharacterCNN, at_words
from seqattn.layers.embedding import Embedding
from seqattn.layers.trilinear import TrilinearMatch
from seqattn.models.span_base import SpanInput, SpanModel, SpanScores
from seqattn.models.span_head import SpanHead
from seqattn.ops.layers import Linear
from seqattn.positions.base import Position, Stack
from seqattn.tokens import PAD, UNK

MATCHES, CLUES = 4, 17
"""Numbers that a batch says of each token: first whether its word, the word in lower case and the
word's stem stand in the question, and how frequent the word is in the context; then what else the
data knows."""


class WordMatch(nn.Module):
    """The features of DrQA's document reader (Chen et al. 2017, arXiv 1704.00051, section 3.2.1).

    Beside each token's embedding stand how its word meets the question's words, and the question's
    embeddings averaged by how alike they are to its own. Time S*Q*D.

    Args:
        dim: width D of the embeddings.
        clues: whether the words' shapes and surroundings count, too.
    """

    def __init__(self, dim: int, clues: bool = False) -> None:
        super().__init__()
        self.alike = Linear(dim, dim)
        self.features = MATCHES + CLUES * clues
        self.width = 2 * dim + self.features

    def forward(self, context: Tensor, question: Tensor, asking: Tensor, match: Tensor) -> Tensor:
        """Embeddings of a window (B, S, D) and its question (B, Q, D) -> (B, S, `width`).

        `asking` (B, Q) is True where a token stands, `match` (B, S, 21) is the batch's.
        """
        mine, theirs = self.alike(context).relu(), self.alike(question).relu()
        weights = masked_softmax(mine @ theirs.transpose(1, 2), asking[:, None])  # (B, S, Q)
        alike = weights.to(question.dtype) @ question
        return torch.cat((context, alike, match[..., : self.features].to(context.dtype)), dim=2)


@dataclass(frozen=True, kw_only=True)
class ReadingShape:
    """How words are read and spans scored, whatever reads on.

    Args:
        word_match: whether tokens know whether their words stand in the question; see `WordMatch`.
        word_clues: whether they know their words' shapes, and how well the words around them meet
            the question, too.
        characters: whether words are known by their characters, too; see `CharacterCNN`.
        hidden_words: share of a question's and its context's different words that are unknown in
            training, each wherever it stands (Iyyer et al. 2015); what `word_match` says stays.
        matching: how context and question meet: by `attention`, or as in `bidaf` or `qanet`.
        joint_spans: whether spans are scored as wholes; see `SpanPairs`.
    """

    word_match: bool = True
    word_clues: bool = False
    characters: bool = False
    hidden_words: Share = 0.0
    matching: Literal["attention", "bidaf", "qanet"] = "attention"
    joint_spans: bool = False

    def __post_init__(self) -> None:
        if self.word_clues and not self.word_match:
            raise UserError("word_clues=true needs word_match=true")


class MatchingModel(SpanModel):
    """Reads question and context apart, lets the context ask the question, and reads on from there.

    Each token of the context stands beside what it attends to in the question, and their product,
    as in BiDAF (Seo et al. 2017, arXiv 1611.01603, eq. 4).

    Args:
        shape: how words are read and spans scored.
        dim: width D.
        attention: makes that by which the context asks the question.
    """

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
        """Features of questions (B, Q, D), under the mask `own`, and of contexts (B, S, D)."""

    @abstractmethod
    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        """Features of contexts (B, S, D) that know the question -> those that are scored."""

    def forward(self, batch: SpanInput) -> SpanScores:
        asking, real = batch.question != PAD, batch.context != PAD
        own, mask = Mask.full(asking), Mask.full(real)
        question, context = self.read_apart(batch, own, mask)
        if self.trilinear is not None:
            met = self.trilinear(context, question, real, asking)
        else:
            met = self._asked(question, context, own, mask)
        return self.head(self.read_again(self.join(met), mask), real, question, asking)

    def _asked(self, question: Tensor, context: Tensor, own: Mask, mask: Mask) -> Tensor:
        """Contexts (B, S, D) beside what they attend to, and the product: (B, S, 3*D)."""
        assert self.question_attention is not None
        across = replace(own, query_positions=mask.query_positions, real_queries=mask.real)
        asked, no_position = self.question_attention.project(question), Position(Stack(1, 1))
        heard = self.question_attention(context, asked, across, no_position).output
        return torch.cat((context, heard, context * heard), dim=2)

    def embedded(self, batch: SpanInput, own: Mask, mask: Mask) -> tuple[Tensor, Tensor]:
        """The words of questions (B, Q, D) and contexts (B, S, D)."""
        ids, letters = [batch.question, batch.context], batch.characters
        words = batch.question_words, batch.context_words
        if self.training and self.hidden_words:
            hidden = torch.rand(letters.shape[:2], device=letters.device) < self.hidden_words
            hidden[:, 0] = False
            letters = letters.masked_fill(hidden[..., None], 0)
            ids = [torch.where(hidden.gather(1, of), UNK, x) for x, of in zip(ids, words)]
        question = self.embedding(ids[0], own.query_positions)
        context = self.embedding(ids[1], mask.query_positions)
        if self.characters is None:
            return question, context
        spelt = self.dropout(self.characters(letters))
        return question + at_words(spelt, words[0]), context + at_words(spelt, words[1])
