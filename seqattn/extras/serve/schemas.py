"""Schemas of requests and responses, published as `/openapi.json`.

Settings of a search are those of the dataclasses of `seqattn.generation`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from seqattn.bundle.choices import choices
from seqattn.bundle.nodes import TARGET, import_path
from seqattn.extras.serve.limits import (
    ITEMS,
    NAMES,
    ByName,
    Filled,
    Gate,
    Name,
    Named,
    Position,
    Request,
    Strings,
    Text,
    settings_of,
)

SENTENCE = "He buys these books."
CROSS = "decoder.layers.0.cross_attention"
Part = Literal["scores", "tokens", "alignment", "attention"]
Numbers = list[Any]
"""Nested lists of numbers."""


_SEARCHES = choices("generation")
_KINDS = [import_path(node[TARGET]) for node in _SEARCHES.values()]


class SearchSettings(settings_of("Settings", _KINDS)):  # type: ignore[misc]
    """Search settings: those of the bundle or of the named search, with some changed."""

    name: Name | None = Field(default=None, description=f"one of {', '.join(_SEARCHES)}")
    no_repeat_ngram: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, description="no so many tokens in a row twice"
    )


class WeightEdit(Request):
    """One attention weight to set; the others of its row are rescaled proportionally."""

    attention: Name = Field(description="a name of the model's attentions", examples=[CROSS])
    head: Position | None = Field(default=None, description="null for all")
    step: Position = Field(
        description="the target token that is predicted, of an encoder's attention the token that "
        "looks; from 0"
    )
    key: Position = Field(description="the token that is looked at, from 0")
    weight: Annotated[float, Field(ge=0, le=1)]


class Intervention(Request):
    """Changes inside the model during the request. A name is an attention's, or a pattern such as
    `decoder.*`; the parts apply in the order in which they are listed here."""

    gates: ByName[Gate] = Field(
        default={}, description="a factor for each head", examples=[{CROSS: [1, 0, 1, 1]}]
    )
    uniform: Named = Field(default=[], description="the same weight on every key")
    permuted: Named = Field(default=[], description="weights in another order, drawn by seed")
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    without_heads: ByName[Annotated[int, Field(ge=-ITEMS, le=ITEMS)]] = Field(default={})
    without_keys: ByName[Position] = Field(default={})
    weights: list[WeightEdit] = Field(default=[], max_length=ITEMS, fail_fast=True)


class GenerateRequest(Request):
    """Texts to generate outputs for."""

    inputs: str | Strings = Field(examples=[SENTENCE])
    generation: Name | SearchSettings | None = Field(default=None, examples=[{"beam_size": 2}])
    n_best: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="different outputs, at most"
    )
    prefix: Filled | Strings | None = Field(
        default=None, description="how every output begins, or one for each input; whole words"
    )
    parts: list[Part] = Field(default=["scores"], alias="return", max_length=NAMES, fail_fast=True)
    attention_as: Literal["lists", "uint16"] = Field(
        default="lists", description="uint16: base64 of 16-bit whole numbers, little-endian"
    )
    intervene: Intervention | None = None
    stream: bool = Field(default=False, description="server-sent events: token or best, then done")

    @property
    def looks(self) -> bool:
        """True if it requests results that need another pass of the model."""
        return bool({"alignment", "attention"} & set(self.parts))


class AnswerRequest(Request):
    """Question about a context, or several with a context each."""

    question: str | Strings = Field(examples=["Who met Dan?"])
    context: str | Strings = Field(examples=["Ann met Dan in town."])
    generation: Name | SearchSettings | None = None
    n_best: Annotated[int, Field(ge=1, le=100)] = 1


class SentenceRequest(Request):
    """Text, or question with its context, to analyse."""

    text: Filled = Field(examples=[SENTENCE], description="or the question")
    context: Filled | None = None
    generation: Name | SearchSettings | None = None
    prefix: Filled | None = Field(default=None, description="how the output begins; whole words")
    intervene: Intervention | None = None
    stream: bool = Field(default=False, description="server-sent events: token or best, then done")


class ExplainRequest(Request):
    """Output to explain, by default the model's own."""

    text: Filled = Field(examples=[SENTENCE], description="or the question, with its context")
    context: Text | None = None
    output: Text | None = Field(default=None, description="null for the model's own")
    method: Name = Field(examples=["attention"])


class Alignment(BaseModel):
    """Source word with the largest attention for each word of the output."""

    source: list[str]
    output: list[str]
    links: list[int]


class Packed(BaseModel):
    """Numbers of a shape, low + step * n for the unsigned 16-bit n of `data` in base64."""

    shape: list[int]
    low: float
    step: float
    data: str


class Maps(BaseModel):
    """Weights (H, T, S) by attention; only names for attentions without weights."""

    maps: dict[str, Numbers | Packed]
    without: list[str]


class Output(BaseModel):
    """One output. The score is the log-probability divided by the length penalty."""

    text: str
    score: float | None = None
    log_probability: float | None = None
    tokens: list[str] | None = None
    source_tokens: list[str] | None = Field(
        default=None,
        description="of the part of the input of which it was made, which alignment and attention "
        "are of, where it was read in several",
    )
    alignment: Alignment | None = None
    attention: Maps | None = None


class Generated(BaseModel):
    """Outputs for one input, best first."""

    outputs: list[Output]
    tokens: list[str] | None = Field(
        default=None, description="of the input, of several parts of the first"
    )
    windows: int | None = Field(
        default=None, description="parts in which it was read, where several"
    )


class GenerateResponse(BaseModel):
    """Result for each input."""

    results: list[Generated]


class Answer(BaseModel):
    """Answer; `start` and `end` are its characters in the context, if it is a part of it."""

    text: str
    start: int | None = None
    end: int | None = None
    probability: float | None = None
    score: float | None = None


class Answers(BaseModel):
    """Answers to one question, best first."""

    answers: list[Answer]
    no_answer: float | None = Field(default=None, description="the probability that there is none")


class AnswerResponse(BaseModel):
    """Result for each question."""

    results: list[Answers]


class ExplainResponse(BaseModel):
    """Contributions of each token read to each token of the output.

    Row t explains the prediction of output token t: `source` (T, S), `prefix` (T, T) with the begin
    mark in column 0, and `rest` (T) the remainder.
    """

    method: str
    text: str
    source_tokens: list[str]
    tokens: list[str]
    source: Numbers
    prefix: Numbers
    rest: list[float]
    windows: int | None = Field(
        default=None,
        description="parts of the text, of which this is the one of which the output was made; of "
        "an output that was given the first",
    )


class Problem(BaseModel):
    """Error of the request, in one line."""

    error: str


class Health(BaseModel):
    """Status of the server, and the output type of its model."""

    status: Literal["ok"]
    gives: Literal["text", "spans"]
    waiting: int = Field(description="inputs in the queue")
