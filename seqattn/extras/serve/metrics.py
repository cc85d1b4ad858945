"""Prometheus metrics of a server."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    values,
)

values.ValueClass = values.MutexValue  # one process: no files of PROMETHEUS_MULTIPROC_DIR
disable_created_metrics()  # otherwise each series gets a second one with its creation time


class Metrics:
    """Metrics of `/metrics`. Args: waiting: returns the length of the queue."""

    def __init__(self, waiting: Callable[[], int] = lambda: 0) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "seqattn_requests", "Completed requests.", ["path", "status"], registry=registry
        )
        self._errors = Counter(
            "seqattn_errors", "Requests with status 400 or above.", ["status"], registry=registry
        )
        self._seconds = Histogram(
            "seqattn_request_seconds",
            "Seconds from a request to the last byte of its response.",
            ["path"],
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )
        tokens = Counter("seqattn_tokens", "Tokens read and written.", ["side"], registry=registry)
        self._source, self._target = tokens.labels("source"), tokens.labels("target")
        self.batches = Histogram(
            "seqattn_batch_inputs",
            "Inputs per batch.",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
        )
        queue = Gauge("seqattn_queue_length", "Waiting inputs.", registry=registry)
        queue.set_function(waiting)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a completed request, with its status and duration."""
        self._requests.labels(path, status).inc()
        if status >= 400:
            self._errors.labels(status).inc()
        self._seconds.labels(path).observe(seconds)

    def tokens(self, source: int, target: int) -> None:
        """Count tokens read and written, including end marks."""
        self._source.inc(source)
        self._target.inc(target)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
