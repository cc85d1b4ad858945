"""The one thread that runs the model: what may be searched together is."""

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
"""Searches several inputs with one search: a result for each."""


@dataclass(eq=False, kw_only=True)
class Work:
    """Work for a client. Args: done: what comes of it; gone: set when the client has left."""

    done: Future[Any] = field(default_factory=Future)
    gone: threading.Event = field(default_factory=threading.Event)

    def leave(self) -> None:
        """Drops the work where it waits, and ends it at its next step where it runs."""
        self.gone.set()
        self.done.cancel()


@dataclass(eq=False)
class Alone(Work):
    """Work that nothing else shares. Args: work: what is done."""

    work: Callable[[Left], Any]
    tokens: ClassVar[int] = 1


@dataclass(eq=False)
class Shared(Work):
    """An input of so many tokens, searched beside others of an equal search."""

    search: Any
    item: Any
    tokens: int


Job = Alone | Shared


class Task(NamedTuple):
    """A request that has been read. Args: jobs: its work; response: from what came of each."""

    jobs: Sequence[Job]
    response: Callable[[list[Any]], Any]


class ModelThread:
    """Takes jobs in the order in which they come; those with equal searches that wait go together.

    One thread, since interventions and captures change the model itself while they are in force: a
    search beside them would be changed and observed, too. After a batch of several a job waits up
    to `batch_wait` for company: a client alone never does. Work for clients of whom those with
    half of its tokens or more have left ends at its next step, and is done for the others alone.

    Args:
        together: searches a batch.
        limits: of the queue and of a batch.
        batched: told the size of each batch.
    """

    def __init__(
        self, together: Together, limits: Limits, batched: Callable[[int], None] = lambda size: None
    ) -> None:
        self._together, self._limits, self._batched = together, limits, batched
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._last = 1  # jobs of the last batch
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues all of them, or none.

        Raises:
            HTTPException: 503 where there is no room for them.
        """
        with self._changed:
            wanted = (job for job in self._waiting if not job.done.cancelled())
            self._waiting = deque(wanted)  # of clients that have gone nothing fills the queue
            if self._closed or len(self._waiting) + len(jobs) > self._limits.queue:
                why = "is stopping" if self._closed else "has too much to do"
                line = f"the server {why}; try again in a second"
                raise HTTPException(503, line, {"Retry-After": "1"})
            self._waiting.extend(jobs)
            self._changed.notify()

    def close(self) -> None:
        """Ends when all that waits is done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._next():
            running = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            self._last = len(jobs)
            if running:
                self._batched(len(running))
                self._do(running)

    def _next(self) -> list[Job]:
        """The jobs that go next: one, or several with equal searches; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            if isinstance(first, Alone):
                return [first]
            jobs: list[Job] = [first]
            room = self._limits.batch_tokens - first.tokens
            wait = self._limits.batch_wait / 1_000 if self._last > 1 else 0.0
            until = time.monotonic() + wait
            while True:
                for job in [one for one in self._waiting if isinstance(one, Shared)]:
                    if job.tokens <= room and job.search == first.search:
                        self._waiting.remove(job)
                        jobs.append(job)
                        room -= job.tokens
                left = until - time.monotonic()
                if self._waiting or self._closed or left <= 0:
                    return jobs
                self._changed.wait(left)

    def _do(self, jobs: list[Job]) -> None:
        """Runs jobs; where several fail together, each for itself."""
        try:
            found = self._results(jobs)
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
            for job, one in zip(jobs, found, strict=True):
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
        return self._together(shared[0].search, [job.item for job in shared], left)
