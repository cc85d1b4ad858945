"""Counts and times of a server, in Prometheus's text format (version 0.0.4)."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """How often values fell at or below each bound, their number and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.number, self.sum = 0, 0.0

    def add(self, value: float) -> None:
        self.counts = [n + (value <= b) for n, b in zip(self.counts, self.bounds, strict=True)]
        self.number += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        before = f"{labels}," if labels else ""
        for bound, count in zip([*self.bounds, "+Inf"], [*self.counts, self.number], strict=True):
            yield f'{name}_bucket{{{before}le="{bound}"}} {count}'
        inner = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{inner} {self.sum:.6f}"
        yield f"{name}_count{inner} {self.number}"


class Figures:
    """What `/metrics` tells. Args: waiting: gives the length of the queue."""

    def __init__(self, waiting: Callable[[], int] = lambda: 0) -> None:
        self.waiting = waiting
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._tokens = {"source": 0, "target": 0}
        self._batches = Histogram(_SIZES)

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request that has ended, with its status and how long it took."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path].add(seconds)

    def tokens(self, source: int, target: int) -> None:
        """Tokens read and written, ends included."""
        with self._lock:
            self._tokens["source"] += source
            self._tokens["target"] += target

    def batch(self, size: int) -> None:
        """Inputs that were searched together."""
        with self._lock:
            self._batches.add(size)

    def text(self) -> str:
        """All of them."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("seqattn_requests_total", "counter", "Requests that have ended.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'seqattn_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("seqattn_errors_total", "counter", "Requests with a status from 400.")
        for status, count in sorted(_errors(self._requests).items()):
            yield f'seqattn_errors_total{{status="{status}"}} {count}'
        yield from _head("seqattn_request_seconds", "histogram", "From a request to its last byte.")
        for path, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("seqattn_request_seconds", f'path="{path}"')
        yield from _head("seqattn_queue_length", "gauge", "Inputs that wait.")
        yield f"seqattn_queue_length {self.waiting()}"
        yield from _head("seqattn_tokens_total", "counter", "Tokens read and written.")
        for side, count in self._tokens.items():
            yield f'seqattn_tokens_total{{side="{side}"}} {count}'
        yield from _head("seqattn_batch_inputs", "histogram", "Inputs that were searched together.")
        yield from self._batches.lines("seqattn_batch_inputs")


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _errors(requests: Mapping[tuple[str, int], int]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for (_, status), count in requests.items():
        if status >= 400:
            found[status] += count
    return found
