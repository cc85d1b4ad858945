"""Documents that the page displays: plain dicts for JSON.

A run's document is an overview; a sentence's document holds its arrays. The same documents are
written to a file or returned by a server.
"""

from typing import TypedDict

from seqattn.subcommands.run_tables import TableDocument


class ArrayDocument(TypedDict):
    """Numbers of any shape, see `arrays.packed`."""

    shape: list[int]
    low: float
    step: float
    data: str
    """Base64 of unsigned 16-bit numbers, little-endian, in C order: low + step * number."""


class ScoreDocument(TypedDict):
    """Score of a whole corpus."""

    name: str
    value: float
    signature: str


class CurveDocument(TypedDict):
    """Measurement during training."""

    name: str
    steps: list[int]
    values: list[float]


class BundleDocument(TypedDict):
    """Settings, training and scores of a bundle."""

    name: str
    kind: str
    """"text" or "spans"."""
    facts: dict[str, str]
    """Facts in a line each: parameters, cost."""
    settings: dict[str, str]
    """Configuration by dotted keys."""
    scores: list[ScoreDocument]
    curves: list[CurveDocument]
    tables: list[TableDocument]


class SummaryDocument(TypedDict):
    """Row of the list of sentences; one figure per bundle."""

    text: str
    length: int
    """Number of words of the source."""
    scores: list[float | None]
    source_use: list[float | None]
    expected: list[float | None]
    """Expected scores, if outputs are judged."""


class RunDocument(TypedDict):
    """Overview that the page requests first."""

    title: str
    split: str
    score: str
    """Name of a sentence's score."""
    source_use: str
    """Method that measured source use; "" for none."""
    bundles: list[BundleDocument]
    sentences: list[SummaryDocument]


class AttentionDocument(TypedDict):
    """Weights of one attention, or why it has none."""

    name: str
    slot: str
    """"encoder", "decoder" or "cross"; "question" for span models."""
    layer: int
    weights: ArrayDocument | None
    """(H, T, S)."""
    reason: str


class ExplanationDocument(TypedDict):
    """Contributions by one method, or why there are none."""

    method: str
    cites: str
    signed: bool
    source: ArrayDocument | None
    """(T, S)."""
    prefix: ArrayDocument | None
    """(T, T)."""
    rest: ArrayDocument | None
    """(T,)."""
    instead: list[str] | None
    """Pieces that those of the output are compared with; None if they are explained alone."""
    reason: str


class LensDocument(TypedDict):
    """Predictions of the decoder's input and of each of its L layers, or why there are none."""

    probability: ArrayDocument | None
    """(L+1, T) of the output's tokens."""
    rank: list[list[int]]
    """L+1 rows of T ranks of the output's tokens, 1 for the likeliest."""
    likeliest: list[list[str]]
    """L+1 rows of the T likeliest pieces."""
    reason: str


class BeamNode(TypedDict):
    """Candidate of a beam search."""

    step: int
    """Step, 1 for the first token."""
    parent: int
    """Index of the parent node, -1 for the begin mark."""
    token: str
    score: float
    """Log-probability in nats of all tokens so far."""
    fate: str
    """"kept", "finished" or "pruned"."""
    best: bool
    """True if it is part of the output."""


class HypothesisDocument(TypedDict):
    """Output with the score that ranked it, and its log-probability in nats."""

    text: str
    score: float
    log_probability: float


class CopyDocument(TypedDict):
    """Copied parts of an output."""

    pieces: list[bool]
    """True for target pieces of copied words."""
    coverage: float
    """Share of the output's words that were copied."""
    density: float
    """Mean of the squared lengths of fragments, in words."""
    pointer: list[float] | None
    """Copy probability of each target piece; None if the model cannot copy."""


class QualityDocument(TypedDict):
    """Judgement of an output by the extra quality."""

    score: str
    """Name of the expected score."""
    expected: float
    label: str
    signals: dict[str, float]
    unsupported: list[int]
    """Target pieces of words that the source does not support."""
    left_out: list[int]
    """Source pieces of words that the output leaves out."""


class LookDocument(TypedDict):
    """One bundle's output for a sentence."""

    source: list[str]
    target: list[str]
    """Pieces, the end included."""
    output: str
    score: float | None
    source_use: float | None
    notes: list[str]
    attentions: list[AttentionDocument]
    explanations: list[ExplanationDocument]
    lens: LensDocument | None
    beam: list[BeamNode]
    hypotheses: list[HypothesisDocument]
    copied: CopyDocument
    quality: QualityDocument | None


class AnswerDocument(TypedDict):
    """Answer with its characters in the context and its probability."""

    text: str
    start: int
    end: int
    probability: float


class SpanTokens(TypedDict):
    """Context tokens, with probabilities that an answer starts at, ends at and contains each."""

    begins: list[int]
    ends: list[int]
    start: list[float]
    end: list[float]
    within: list[float]


class AnswerLookDocument(TypedDict):
    """One bundle's answers to a question."""

    question: list[str]
    context: list[str]
    """Pieces of the window with the likeliest answer."""
    output: str
    score: float | None
    source_use: float | None
    notes: list[str]
    attentions: list[AttentionDocument]
    answers: list[AnswerDocument]
    no_answer: float
    tokens: SpanTokens


class SentenceDocument(TypedDict):
    """Sentence, or question with context, and each bundle's output for it."""

    number: int
    text: str
    context: str | None
    references: list[str]
    looks: list[LookDocument | AnswerLookDocument]
