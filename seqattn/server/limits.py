"""What a server takes at once, and how it says no."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqattn.checking import Count, NotNegative, checked


@checked
@dataclass(frozen=True)
class Limits:
    """How much a server takes.

    Args:
        body_bytes: of a request.
        inputs: texts or questions of a request.
        tokens: source tokens of a request.
        queue: inputs that wait, of all requests.
        batch_tokens: source tokens that are searched together, but for a longer input alone.
        batch_wait: milliseconds that an input waits for others at most, where several came last.
    """

    body_bytes: Count = 1_000_000
    inputs: Count = 128
    tokens: Count = 20_000
    queue: Count = 512
    batch_tokens: Count = 4_096
    batch_wait: NotNegative = 3.0


@dataclass
class Refused(Exception):
    """A request that gets no answer.

    Args:
        status: of HTTP.
        line: what must be mended.
        headers: of the response.
    """

    status: int
    line: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.line


def too_many(what: str, most: int, came: int) -> Refused:
    """413: a request that must be split."""
    return Refused(413, f"a request may have {most:,} {what}, got {came:,}; split it")
