"""The documents that the page draws: plain dicts that JSON can hold.

A run's document says what there is, a sentence's holds its arrays. The same documents are written
into a file or given by a server.
"""

from typing import TypedDict

from seqattn.verbs.run_tables import TableDocument


class ArrayDocument(TypedDict):
    """Numbers of any shape, as `arrays.packed` makes them."""

    shape: list[int]
    low: float
    step: float
    data: str
    """Base64 of unsigned 16-bit numbers, little-endian, in C order: low + step * number."""


class ScoreDocument(TypedDict):
    """A score of a whole corpus."""

    name: str
    value: float
    signature: str


class CurveDocument(TypedDict):
    """A measurement of the training."""

    name: str
    steps: list[int]
    values: list[float]


class BundleDocument(TypedDict):
    """A bundle: how it was made, and what it scored."""

    name: str
    kind: str
    """"text" or "spans"."""
    facts: dict[str, str]
    """What there is to say in a line each: parameters, cost."""
    settings: dict[str, str]
    """Its configuration by dotted keys."""
    scores: list[ScoreDocument]
    curves: list[CurveDocument]
    tables: list[TableDocument]


class SummaryDocument(TypedDict):
    """A row of the list of sentences; figures of each bundle in turn."""

    text: str
    length: int
    """Words of the source."""
    scores: list[float | None]
    source_use: list[float | None]


class RunDocument(TypedDict):
    """What the page asks for first."""

    title: str
    split: str
    score: str
    """What a sentence's score is."""
    source_use: str
    """How it was measured how much of the source an output used; "" for nothing."""
    bundles: list[BundleDocument]
    sentences: list[SummaryDocument]


class AttentionDocument(TypedDict):
    """Weights of one attention, or why it has none."""

    name: str
    slot: str
    """"encoder", "decoder" or "cross"; of spans "question"."""
    layer: int
    weights: ArrayDocument | None
    """(H, T, S)."""
    reason: str


class ExplanationDocument(TypedDict):
    """Contributions by one method, or why they cannot be had."""

    method: str
    cites: str
    signed: bool
    source: ArrayDocument | None
    """(T, S)."""
    prefix: ArrayDocument | None
    """(T, T)."""
    rest: ArrayDocument | None
    """(T,)."""
    reason: str


class BeamNode(TypedDict):
    """A candidate of a beam search."""

    step: int
    """1 for the first token."""
    parent: int
    """The number of the node before it, -1 for the begin."""
    token: str
    score: float
    """Log-probability in nats of all tokens so far."""
    fate: str
    """"kept", "finished" or "pruned"."""
    best: bool
    """Whether it is on the way to the output."""


class HypothesisDocument(TypedDict):
    """An output with its score, by which it was ranked, and its log-probability in nats."""

    text: str
    score: float
    log_probability: float


class CopyDocument(TypedDict):
    """What of an output stands in the source."""

    pieces: list[bool]
    """Whether each target piece belongs to a word that was copied."""
    coverage: float
    """Share of the output's words that were copied."""
    density: float
    """The mean of the squared lengths of fragments, in words."""
    pointer: list[float] | None
    """For each target piece the probability of copying; None of a model that cannot copy."""


class LookDocument(TypedDict):
    """What one bundle makes of a sentence."""

    source: list[str]
    target: list[str]
    """Pieces, the end included."""
    output: str
    score: float | None
    source_use: float | None
    notes: list[str]
    attentions: list[AttentionDocument]
    explanations: list[ExplanationDocument]
    beam: list[BeamNode]
    hypotheses: list[HypothesisDocument]
    copied: CopyDocument


class AnswerDocument(TypedDict):
    """An answer with its characters in the context and its probability."""

    text: str
    start: int
    end: int
    probability: float


class SpanTokens(TypedDict):
    """Tokens of a context, and the probability that an answer starts, ends and passes there."""

    begins: list[int]
    ends: list[int]
    start: list[float]
    end: list[float]
    within: list[float]


class AnswerLookDocument(TypedDict):
    """What one bundle answers to a question."""

    question: list[str]
    context: list[str]
    """Pieces of the window where an answer is likeliest."""
    output: str
    score: float | None
    source_use: float | None
    notes: list[str]
    attentions: list[AttentionDocument]
    answers: list[AnswerDocument]
    no_answer: float
    tokens: SpanTokens


class SentenceDocument(TypedDict):
    """A sentence, or a question on a context, and what each bundle makes of it."""

    number: int
    text: str
    context: str | None
    references: list[str]
    looks: list[LookDocument | AnswerLookDocument]
