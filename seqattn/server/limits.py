"""What a server takes at once."""

from dataclasses import dataclass

from seqattn.checking import Count, NotNegative, checked


@checked
@dataclass(frozen=True)
class Limits:
    """How much a server takes.

    Args:
        body_bytes: of a request.
        inputs: texts or questions of a request.
        tokens: source tokens of a request.
        shown_tokens: of a text and its output together, whose attention is asked for or changed:
            what that takes grows with their square.
        queue: inputs that wait, of all requests.
        batch_tokens: source tokens that are searched together, but for a longer input alone.
        batch_wait: milliseconds that an input waits for others at most, where several came last.
    """

    body_bytes: Count = 1_000_000
    inputs: Count = 128
    tokens: Count = 20_000
    shown_tokens: Count = 600
    queue: Count = 512
    batch_tokens: Count = 4_096
    batch_wait: NotNegative = 3.0
