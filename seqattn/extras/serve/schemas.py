"""Schemas of requests and responses, published as `/openapi.json`.

Search settings are the fields of the dataclasses in `seqattn.generation`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, create_model

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
    Terms,
    Text,
    TextList,
    settings_of,
)
from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, import_path

SENTENCE = "He buys these books."
CROSS = "decoder.layers.0.cross_attention"
Part = Literal["scores", "tokens", "alignment", "attention", "quality"]
Numbers = list[Any]
"""Nested lists of numbers."""


_SEARCHES = choices("generation")
_KINDS = [import_path(node[TARGET]) for node in _SEARCHES.values()]


class SearchSettings(settings_of("Settings", _KINDS)):  # type: ignore[misc]
    """Search settings: those of the bundle or of the named search, with some changed."""

    name: Name | None = Field(default=None, description=f"one of {', '.join(_SEARCHES)}")
    no_repeat_ngram: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, description="n-grams of this size may not repeat"
    )


class WeightEdit(Request):
    """One attention weight to set; the others of its row are rescaled proportionally."""

    attention: Name = Field(description="name of one attention", examples=[CROSS])
    head: Position | None = Field(default=None, description="null for all heads")
    step: Position = Field(
        description="predicted target token, or query token in an encoder's attention, from 0"
    )
    key: Position = Field(description="key token, from 0")
    weight: Annotated[float, Field(ge=0, le=1)]


class Intervention(Request):
    """Changes inside the model during the request. Names are those of attentions, or patterns such
    as `decoder.*`; the edits apply in the order listed here."""

    gates: ByName[Gate] = Field(
        default={}, description="factor for each head", examples=[{CROSS: [1, 0, 1, 1]}]
    )
    uniform: Named = Field(default=[], description="equal weights on all keys")
    permuted: Named = Field(default=[], description="random permutation of the weights, by seed")
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    without_heads: ByName[Annotated[int, Field(ge=-ITEMS, le=ITEMS)]] = Field(default={})
    without_keys: ByName[Position] = Field(default={})
    weights: list[WeightEdit] = Field(default=[], max_length=ITEMS, fail_fast=True)


class GenerateRequest(Request):
    """Texts to generate outputs for."""

    inputs: str | Strings = Field(examples=[SENTENCE])
    generation: Name | SearchSettings | None = Field(default=None, examples=[{"beam_size": 2}])
    n_best: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="maximum number of different outputs"
    )
    prefix: Filled | TextList | None = Field(
        default=None,
        description="beginning of every output, or one for each input; a space ends a word",
    )
    target_language: Name | None = Field(
        default=None, description="of the outputs of a multilingual model", examples=["deu_Latn"]
    )
    terms: Terms | None = Field(
        default=None,
        description='target terms of source terms; "!" before one forbids it',
        examples=[{"books": ["Bücher", "!Hefte"]}],
    )
    terms_case: bool = Field(default=False, description="upper and lower case of terms differ")
    format: Literal["text", "html", "placeholders"] = Field(
        default="text", description="markup of the inputs, put where its words went"
    )
    sentences: Name = Field(
        default="auto",
        description="language of the inputs, whose sentences are generated one by one; none: as "
        "they are; auto: by the sentence if the model learned single ones",
    )
    document_lines: Literal["auto"] | None = Field(
        default="auto",
        description="auto: outputs of a model of documents that lose or gain lines are generated "
        "again line by line; null: not",
    )
    parts: list[Part] = Field(default=["scores"], alias="return", max_length=NAMES, fail_fast=True)
    attention_as: Literal["lists", "uint16"] = Field(
        default="lists", description="uint16: base64 of 16-bit integers, little-endian"
    )
    intervene: Intervention | None = None
    stream: bool = Field(default=False, description="server-sent events: token or best, then done")

    @property
    def looks(self) -> bool:
        """True if it requests results that need another pass of the model."""
        return bool({"alignment", "attention", "quality"} & set(self.parts))


class AnswerRequest(Request):
    """Question about a context, or several with a context each."""

    question: str | Strings = Field(examples=["Who met Dan?"])
    context: str | Strings = Field(examples=["Ann met Dan in town."])
    generation: Name | SearchSettings | None = None
    n_best: Annotated[int, Field(ge=1, le=100)] = 1


class SentenceRequest(Request):
    """Text, or question with its context, to analyze."""

    text: Filled = Field(examples=[SENTENCE], description="text or question")
    context: Filled | None = None
    generation: Name | SearchSettings | None = None
    prefix: Filled | None = Field(default=None, description="beginning of the output")
    intervene: Intervention | None = None
    stream: bool = Field(default=False, description="server-sent events: token or best, then done")


class ExplainRequest(Request):
    """Output to explain, by default the model's own."""

    text: Filled = Field(examples=[SENTENCE], description="text, or question about the context")
    context: Text | None = None
    output: Text | None = Field(default=None, description="null for the model's own")
    instead: Text | None = Field(
        default=None, description="another output: why was its token not chosen, where both differ"
    )
    method: Name = Field(examples=["attention"])


class Alignment(BaseModel):
    """Source word with the largest attention for each word of the output."""

    source: list[str]
    output: list[str]
    links: list[int]


class Packed(BaseModel):
    """Array of numbers low + step * n, for the unsigned 16-bit integers n of `data` in base64."""

    shape: list[int]
    low: float
    step: float
    data: str


class Maps(BaseModel):
    """Weights (H, T, S) by attention, and the names of attentions without weights."""

    maps: dict[str, Numbers | Packed]
    without: list[str]


class Quality(BaseModel):
    """Judgement of an output, if its text was read in one window; marked words by place. A text of
    several lines has that of its worst line, with the marked words of all."""

    expected: float = Field(description="expected score, 0 to 100, as calibrated")
    label: str = Field(description="usable, review or unusable")
    signals: dict[str, float]
    unsupported: list[tuple[int, str]] = Field(description="words that the source lacks")
    left_out: list[tuple[int, str]] = Field(description="words of the source that it leaves out")


class Output(BaseModel):
    """One output. The score is the log-probability divided by the length penalty."""

    text: str
    score: float | None = None
    log_probability: float | None = None
    tokens: list[str] | None = None
    source_tokens: list[str] | None = Field(
        default=None,
        description="tokens of the window that gave this output, to which alignment and attention "
        "refer; only for inputs of several windows",
    )
    alignment: Alignment | None = None
    attention: Maps | None = None
    quality: Quality | None = None
    unmet: list[str] | None = Field(
        default=None, description="required terms that the output lacks, and !forbidden ones"
    )
    lost: list[str] | None = Field(
        default=None, description="placeholders that no word of the output comes from"
    )


class Generated(BaseModel):
    """Outputs for one input, best first."""

    outputs: list[Output]
    tokens: list[str] | None = Field(
        default=None, description="tokens of the input, or of its first window"
    )
    windows: int | None = Field(
        default=None, description="number of windows of the input, if several"
    )
    lines: int | None = Field(
        default=None, description="number of lines and sentences of the input, if several"
    )


class GenerateResponse(BaseModel):
    """Result for each input."""

    results: list[Generated]
    notices: list[str] | None = Field(default=None, description="how the inputs were read")


class Answer(BaseModel):
    """Answer; `start` and `end` are its character offsets, if it is a span of the context."""

    text: str
    start: int | None = None
    end: int | None = None
    probability: float | None = None
    score: float | None = None


class Answers(BaseModel):
    """Answers to one question, best first."""

    answers: list[Answer]
    no_answer: float | None = Field(default=None, description="probability of no answer")


class AnswerResponse(BaseModel):
    """Result for each question."""

    results: list[Answers]


class ExplainResponse(BaseModel):
    """Contribution of each input token to each output token.

    Row t explains the prediction of output token t: `source` (T, S), `prefix` (T, T) with the begin
    mark in column 0, and `rest` (T) the remainder. With `instead`, the last token is compared with
    its token there, and other rows are 0.
    """

    method: str
    text: str
    source_tokens: list[str]
    tokens: list[str]
    instead: str | None = Field(default=None, description="the token compared with the last one")
    source: Numbers
    prefix: Numbers
    rest: list[float]
    windows: int | None = Field(
        default=None,
        description="number of windows of the text, if several; the explanation covers the one "
        "that gave the output, or the first one if `output` was requested",
    )


class Problem(BaseModel):
    """Error of the request, in one line."""

    error: str


class TranslationRequest(Request):
    """Text to translate between languages, which choose the model unless it is named."""

    text: str | Strings = Field(examples=[SENTENCE])
    source_language: Name | None = Field(default=None, description="null: detected")
    target_language: Name | None = None
    model: Name | None = None


class TranslationResponse(BaseModel):
    """Translation: a text for a text, a list for a list."""

    object: Literal["translation"] = "translation"
    model: str
    translated_text: str | list[str]
    source_language: str
    target_language: str


_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def naming_model(several: bool) -> Callable[[_Endpoint], _Endpoint]:
    """Add the key `model` to the body of an endpoint, if there are several models."""
    field = Field(default=None, description="name of a bundle; see /v1/models")

    def changed(endpoint: _Endpoint) -> _Endpoint:
        kind = endpoint.__annotations__["body"]
        model: Any = (Name | None, field)
        named = create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, model=model)
        endpoint.__annotations__["body"] = named if several else kind
        return endpoint

    return changed


class Health(BaseModel):
    """Status of the server, and the output type of its model."""

    status: Literal["ok"]
    gives: Literal["text", "spans"]
    waiting: int = Field(description="inputs in the queue")
