"""What a server takes at once."""

from dataclasses import dataclass

from seqattn.checking import Count, NotNegative, Positive, checked


@checked
@dataclass(frozen=True)
class Limits:
    """How much a server takes.

    Args:
        body_bytes: of a request.
        inputs: texts or questions of a request.
        tokens: source tokens of a request.
        target_tokens: of a request, as many as all its hypotheses may have.
        shown_tokens: of a text and its output together, whose attention is asked for or changed:
            what that takes grows with their square.
        queue: inputs that wait, of all requests.
        batch_tokens: source tokens that are searched together, but for a longer input alone.
        connections: open at once.
        read_seconds: within which the head of a request must come, its body must come, and each
            part of a response must be read.
        batch_wait: milliseconds that an input waits for others at most, where several came last.
    """

    body_bytes: Count = 1_000_000
    inputs: Count = 128
    tokens: Count = 20_000
    target_tokens: Count = 200_000
    shown_tokens: Count = 600
    queue: Count = 512
    connections: Count = 256
    read_seconds: Positive = 20.0
    batch_tokens: Count = 4_096
    batch_wait: NotNegative = 3.0
