"""Limits on a server's load and on the fields of a request."""

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, TypeVar

from annotated_types import Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from seqattn.checking import Count, NotNegative, Positive, Share, in_words, parameters
from seqattn.errors import UserError

SEARCH_BOUNDS: dict[str, Any] = {
    "beam_size": Le(100),
    "samples": Le(100),
    "order": Le(4),
    "ratio": Le(10),
    "extra": Le(1_000),
    "minimum": Le(1_000),
    "max_answer": Le(1_000),
}
"""Bounds of a request's search settings, stricter than those of `seqattn.generation`.
Lists and texts need one here, see `settings_of`."""
SERVER_SETTINGS = ("n_best", "answers", "batch_size", "batch_tokens", "workers", "graph")
"""Settings of a search with a key of their own in a request, or set by the server."""

NAMES, ITEMS, CHARACTERS = 64, 1_000, 100_000
Gate = Annotated[float, Field(ge=-1e6, le=1e6)]
"""Scale of a head; with much larger ones outputs overflow."""
Text = Annotated[str, StringConstraints(max_length=CHARACTERS)]
Filled = Annotated[str, StringConstraints(min_length=1, max_length=CHARACTERS)]
Name = Annotated[str, StringConstraints(max_length=100)]
Strings = Annotated[list[str], Field(fail_fast=True)]
"""Unbounded here: the server's limits apply, with a status of their own."""
TextList = Annotated[list[Text], Field(fail_fast=True)]
Position = Annotated[int, Field(ge=0, le=1_000_000)]
Item = TypeVar("Item")
Named = Annotated[list[Name], Field(max_length=NAMES, fail_fast=True)]


def _few(value: Any) -> Any:
    """Reject a mapping with too many keys before its values are checked: each may be an error."""
    if isinstance(value, dict) and len(value) > NAMES:
        line = "should have at most {most} names, not {count}"
        raise PydanticCustomError("too_long", line, {"most": NAMES, "count": len(value)})
    return value


ByName = Annotated[
    dict[Name, Annotated[list[Item], Field(max_length=ITEMS, fail_fast=True)]],
    BeforeValidator(_few),
    Field(max_length=NAMES),
]
"""List per attention or pattern."""

Terms = Annotated[
    dict[Name, Annotated[list[Name], Field(max_length=8, fail_fast=True)]],
    BeforeValidator(_few),
    Field(max_length=NAMES),
]
"""Target terms of each source term."""


class Request(BaseModel):
    """Schema that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, value: Any) -> Any:
        """Retain only one unknown key, since pydantic creates an error for each, with those known
        in place of its value."""
        if not isinstance(value, dict):
            return value
        fields = cls.model_fields
        known = {*fields, *(field.alias for field in fields.values())}
        unknown = [key for key in value if key not in known]
        names = [field.alias or name for name, field in fields.items()]
        kept = {key: value[key] for key in value if key in known}
        return kept | dict.fromkeys(unknown[:1], names)


def settings_of(name: str, kinds: Sequence[Any]) -> type[Request]:
    """Return a request schema with the fields of dataclasses, all optional.

    New fields, and new choices in `conf/generation`, are included automatically. Fields that hold
    objects other than dataclasses, such as processors, are omitted.

    Args:
        name: name of the schema.
        kinds: dataclasses; a field's name means the same in all of them.
    """
    fields: dict[str, Any] = {}
    for kind in kinds:
        for key, hint in parameters(kind).items():
            if is_dataclass(hint):
                fields[key] = settings_of(f"{key.title()}Settings", [hint]) | None, None
            elif in_words(hint) and key not in SERVER_SETTINGS:
                bounded = Annotated[hint, SEARCH_BOUNDS[key]] if key in SEARCH_BOUNDS else hint
                fields[key] = bounded | None, None
    return create_model(name, __base__=Request, **fields)


class TooMuch(UserError):
    """Error for a request that must be split: HTTP status 413."""


@dataclass(frozen=True)
class Limits:
    """Limits on a server's load.

    Args:
        body_bytes: bytes of a request's body.
        inputs: texts or questions per request.
        characters: characters per request, of all its texts, counted before anything is read.
        tokens: source tokens per request.
        target_tokens: target tokens per request, over all hypotheses.
        shown_tokens: tokens of a text and its output together, if attention is requested or
            edited: memory grows with their square.
        queue: waiting inputs of all requests.
        batch_tokens: source tokens per batch; a longer input is decoded by itself.
        connections: open connections.
        read_seconds: time limit for the head of a request, for its body, and for reading each
            part of a response.
        timeout: seconds for a request, waiting included; its search ends at the next step.
        batch_wait: maximum milliseconds that an input waits for others, after a batch of several.
        files: requests with files at a time.
        file_bytes: bytes of the body of a request with a file.
        file_seconds: seconds for translating a file, waiting included.
        download_bytes: bytes of all translated files that clients may still fetch; the oldest ones
            are dropped.
        download_seconds: seconds in which a client may fetch a translated file.
        detection: smallest probability of the language of source=auto, of several.
    """

    body_bytes: Count = 1_000_000
    inputs: Count = 128
    characters: Count = 200_000
    tokens: Count = 20_000
    target_tokens: Count = 200_000
    shown_tokens: Count = 600
    queue: Count = 512
    connections: Count = 256
    read_seconds: Positive = 20.0
    timeout: Positive = 300.0
    batch_tokens: Count = 4_096
    batch_wait: NotNegative = 3.0
    files: Count = 2
    file_bytes: Count = 10_000_000
    file_seconds: Positive = 1_800.0
    download_bytes: Count = 100_000_000
    download_seconds: Positive = 600.0
    detection: Share = 0.8

    def check(self, name: str, count: int, what: str = "") -> None:
        """Compare a count of a request with the limit of that name.

        Args:
            name: name of the limit.
            count: number to check.
            what: name in messages, the limit's name by default.

        Raises:
            TooMuch: if the count exceeds the limit.
        """
        most = getattr(self, name)
        if count > most:
            raise TooMuch(
                f"a request may have at most {most:,} {what or name}, got {count:,}; split it"
            )

    def check_texts(self, texts: Sequence[str]) -> None:
        """Compare the number of texts, and of their characters, with limits. Raises: as `check`."""
        self.check("inputs", len(texts))
        self.check("characters", sum(map(len, texts)))

    def check_shown(self, source: int, output: int = 0) -> None:
        """Compare the tokens of a text, and of its output, with `shown_tokens`.

        Raises:
            UserError: if they exceed it.
        """
        if source + output > self.shown_tokens:
            what = "the text and its output have" if output else "the text has"
            raise UserError(
                f"attention is limited to {self.shown_tokens:,} tokens, but {what} "
                f"{source + output:,}; shorten the text"
            )
