"""Prometheus metrics of a server."""

from collections.abc import Callable, Mapping

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
        self._requests = Counter(
            "seqattn_requests",
            "Completed requests.",
            ["path", "status", *extra],
            registry=registry,
        )
        self._errors = Counter(
            "seqattn_errors",
            "Requests with status 400 or above.",
            ["status", *extra],
            registry=registry,
        )
        self._seconds = Histogram(
            "seqattn_request_seconds",
            "Seconds from a request to the last byte of its response.",
            ["path", *extra],
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )
        tokens = Counter(
            "seqattn_tokens", "Tokens read and written.", ["side", *extra], registry=registry
        )
        batches = Histogram(
            "seqattn_batch_inputs",
            "Inputs per batch.",
            extra,
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
        )
        queue = Gauge("seqattn_queue_length", "Waiting inputs.", extra, registry=registry)
        if queues is None:
            super().__init__(tokens, batches)
            queue.set_function(waiting)
            return
        self.by_model = {name: ModelMetrics(tokens, batches, name) for name in queues}
        for name, length in queues.items():
            queue.labels(name).set_function(length)
        self.loads = Counter("seqattn_loads", "Loads of weights.", extra, registry=registry)
        weights = Gauge("seqattn_loaded_bytes", "Weights in memory.", registry=registry)
        weights.set_function(loaded)
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
