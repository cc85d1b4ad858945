"""Prometheus metrics of a server."""

from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    values,
)

values.ValueClass = values.MutexValue  # one process: no files of PROMETHEUS_MULTIPROC_DIR
disable_created_metrics()  # otherwise each series gets a second one with its creation time


class ModelMetrics:
    """Counts of a model. Args: name: its name, if there are several."""

    def __init__(self, tokens: Counter, batches: Histogram, *name: str) -> None:
        self._source, self._target = tokens.labels("source", *name), tokens.labels("target", *name)
        self.batches = batches.labels(*name) if name else batches

    def tokens(self, source: int, target: int) -> None:
        """Count tokens read and written, including end marks."""
        self._source.inc(source)
        self._target.inc(target)


class Metrics(ModelMetrics):
    """Metrics of `/metrics`.

    Args:
        waiting: returns the length of the queue.
        queues: the same for each of several models, whose names are then labels.
        loaded: returns the bytes of their weights in memory.
    """

    def __init__(
        self,
        waiting: Callable[[], int] = lambda: 0,
        queues: Mapping[str, Callable[[], int]] | None = None,
        loaded: Callable[[], int] = lambda: 0,
    ) -> None:
        self.registry = registry = CollectorRegistry()
        self._extra = extra = [] if queues is None else ["model"]
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        requests, errors = "Completed requests.", "Requests with status 400 or above."
        self._requests = counter("seqattn_requests", requests, ["path", "status", *extra])
        self._errors = counter("seqattn_errors", errors, ["status", *extra])
        times = "Seconds from a request to the last byte of its response."
        bounds = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
        paths = ["path", *extra]
        self._seconds = histogram("seqattn_request_seconds", times, paths, buckets=bounds)
        tokens = counter("seqattn_tokens", "Tokens read and written.", ["side", *extra])
        sizes = (1, 2, 4, 8, 16, 32, 64, 128)
        batches = histogram("seqattn_batch_inputs", "Inputs per batch.", extra, buckets=sizes)
        queue = gauge("seqattn_queue_length", "Waiting inputs.", extra)
        if queues is None:
            super().__init__(tokens, batches)
            queue.set_function(waiting)
            return
        self.by_model = {name: ModelMetrics(tokens, batches, name) for name in queues}
        for name, length in queues.items():
            queue.labels(name).set_function(length)
        self.loads = counter("seqattn_loads", "Loads of weights.", extra)
        gauge("seqattn_loaded_bytes", "Weights in memory.").set_function(loaded)
        ProcessCollector(registry=registry)

    def request(self, path: str, status: int, seconds: float, model: str = "") -> None:
        """Count a completed request, with its status and duration."""
        values = [model] if self._extra else []
        self._requests.labels(path, status, *values).inc()
        if status >= 400:
            self._errors.labels(status, *values).inc()
        self._seconds.labels(path, *values).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
