"""What requests are refused for."""

from typing import Protocol

from starlette.exceptions import HTTPException

from seqattn.bundle.bundle import TextBundle
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.extras.serve.schemas import GenerateRequest
from seqattn.generation.base import Hypothesis


class Searched(Protocol):
    """An input with its beginning."""

    @property
    def place(self) -> int: ...
    @property
    def prefix(self) -> tuple[int, ...]: ...
    @property
    def size(self) -> int: ...


class Shown:
    """The outputs of a request whose attention is given: together as much as of one text.

    Args:
        most: tokens of a text and its output; weights grow with their square.
    """

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0

    def add(self, tokens: int) -> None:
        """Counts an output and its source, or refuses it with a `UserError`."""
        self.seen += tokens**2
        if self.seen > self.most**2:
            raise UserError(
                f"the attention of all outputs of a request is as much as that of {self.most:,} "
                "tokens at most; ask for fewer outputs"
            )


def check_lines(asked: GenerateRequest, lines: TextLines) -> None:
    """Refuses several lines where what is asked for is of one line.

    Raises:
        UserError: which names the keys to leave out.
    """
    if len(lines.lines) == len(lines.parts):
        return
    keys = [name for name in ("prefix", "intervene", "stream") if getattr(asked, name)]
    keys += [f"return={part}" for part in asked.parts if part != "scores"]
    if keys:
        raise UserError(
            f"this model reads one line and a text has several; leave out {', '.join(keys)}, or "
            "send each line as a text"
        )


def too_many(what: str, most: int, came: int) -> HTTPException:
    """413: a request that must be split."""
    return HTTPException(413, f"a request may have {most:,} {what}, got {came:,}; split it")


def one_line(bundle: TextBundle, source: str) -> str:
    """The line of a text that is looked into; a `UserError` where the model reads one of several.

    Blank lines around it are left out.
    """
    line, *others = bundle.lines([source]).lines
    if others:
        raise UserError("this model reads one line and the text has several; send one")
    return line


def check_prefix(one: Searched, best: Hypothesis) -> None:
    """A `UserError` where an input's limit is shorter than the beginning that was asked for."""
    if best.ids[: len(one.prefix)] != one.prefix and one.size:
        raise UserError(
            f"prefix has {len(one.prefix)} tokens, the output of input {one.place + 1} at most "
            f"{len(best.ids)}; give generation a larger limit.extra"
        )


def looks(asked: GenerateRequest) -> bool:
    """Whether a request asks for what needs another pass of the model."""
    return bool({"alignment", "attention"} & set(asked.parts))
