"""Single thread that runs the models, batching compatible jobs."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from starlette.exceptions import HTTPException

from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.searches import Gone, Left

Together = Callable[[Any, list[Any], Left], Sequence[Any]]
"""Function that searches several inputs with one search and returns a result for each."""


@dataclass(eq=False, kw_only=True)
class Work:
    """Work for a client.

    Args:
        done: its result.
        gone: set when the client has disconnected.
        reader: reader of the model, which searches batches and counts them.
    """

    done: Future[Any] = field(default_factory=Future)
    gone: threading.Event = field(default_factory=threading.Event)
    reader: Any = None

    def leave(self) -> None:
        """Drop waiting work, or end running work at its next step."""
        self.gone.set()
        self.done.cancel()


@dataclass(eq=False)
class Alone(Work):
    """Work that runs by itself. Args: work: function to run."""

    work: Callable[[Left], Any]
    tokens: ClassVar[int] = 1


@dataclass(eq=False)
class Shared(Work):
    """Input and its number of tokens, batched with other inputs of an equal search."""

    search: Any
    item: Any
    tokens: int


Job = Alone | Shared


class Task(NamedTuple):
    """Parsed request. Args: jobs: its work; response: builds the response from their results."""

    jobs: Sequence[Job]
    response: Callable[[list[Any]], Any]


class ModelThread:
    """Run jobs in order of arrival, batching waiting jobs of a model with equal searches.

    There is one thread, since active interventions and captures change the model itself: concurrent
    searches would be changed and observed, too. After a batch of several jobs, the next one waits
    up to `batch_wait` for others; a single client never waits. If clients with at least half of a
    batch's tokens disconnect, the batch ends at its next step and is repeated for the others only.

    Args:
        limits: limits of the queue and of a batch.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._last = 1  # jobs of the last batch
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self, reader: Any) -> int:
        """Return the number of waiting jobs of a reader."""
        return sum(job.reader is reader for job in self._waiting.copy())

    def submit(self, jobs: Sequence[Job], reader: Any) -> None:
        """Queue all jobs of a request to the reader of a model, or none.

        Raises:
            HTTPException: 503 if the queue of its model is too full.
        """
        with self._changed:
            wanted = (job for job in self._waiting if not job.done.cancelled())
            self._waiting = deque(wanted)  # cancelled jobs do not fill the queue
            if self._closed or len(jobs) + self.waiting(reader) > self._limits.queue:
                why = "is stopping" if self._closed else "is overloaded"
                line = f"the server {why}; try again in a second"
                raise HTTPException(503, line, {"Retry-After": "1"})
            for job in jobs:
                job.reader = reader
            self._waiting.extend(jobs)
            self._changed.notify()

    def close(self) -> None:
        """Stop once all waiting jobs are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Run the next jobs, retaining no reference to their model; False at the end."""
        jobs = self._next()
        running = [job for job in jobs if job.done.set_running_or_notify_cancel()]
        self._last = len(jobs)
        if running:
            running[0].reader.metrics.batches.observe(len(running))
            self._do(running)
        return bool(jobs)

    def _next(self) -> list[Job]:
        """Return the next jobs: one, or several with equal searches; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            if isinstance(first, Alone):
                return [first]
            jobs: list[Job] = [first]
            tokens_left = self._limits.batch_tokens - first.tokens
            wait = self._limits.batch_wait / 1_000 if self._last > 1 else 0.0
            until = time.monotonic() + wait
            while True:
                for job in [one for one in self._waiting if isinstance(one, Shared)]:
                    is_equal = job.reader is first.reader and job.search == first.search
                    if job.tokens <= tokens_left and is_equal:
                        self._waiting.remove(job)
                        jobs.append(job)
                        tokens_left -= job.tokens
                left = until - time.monotonic()
                if self._waiting or self._closed or left <= 0:
                    return jobs
                self._changed.wait(left)

    def _do(self, jobs: list[Job]) -> None:
        """Run jobs; if several fail together, run each by itself."""
        try:
            results = self._results(jobs)
        except Gone as error:
            staying = [job for job in jobs if not job.gone.is_set()]
            for job in jobs:
                if job.gone.is_set():
                    job.done.set_exception(error)
            if staying:
                self._do(staying)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].done.set_exception(error)
            else:
                for job in jobs:
                    self._do([job])
        else:
            for job, one in zip(jobs, results, strict=True):
                job.done.set_result(one)

    def _results(self, jobs: list[Job]) -> Sequence[Any]:
        sizes = [(job.gone, max(1, job.tokens)) for job in jobs]
        half = sum(size for _, size in sizes) / 2

        def left() -> bool:
            return sum(size for gone, size in sizes if gone.is_set()) >= half

        first = jobs[0]
        if isinstance(first, Alone):
            return [first.work(left)]
        shared = [job for job in jobs if isinstance(job, Shared)]
        search: Together = first.reader.search
        return search(first.search, [job.item for job in shared], left)
