"""Single-threaded processes that share the batches of a search.

A search multiplies small matrices, where the threads of one process wait for each other at each
product; processes do not.
"""

import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch

from seqattn.processes import worker_deaths, worker_pool

Job = TypeVar("Job")
Result = TypeVar("Result")
START = "fork" if sys.platform == "linux" else "spawn"
"""Start method: forked processes share memory with this one and start at once; spawned ones import
everything again and receive pickled objects, with weights in shared memory."""


def usual_workers() -> int:
    """Return torch's number of threads, or 1 where processes should not be started by default.

    That is the case where they would not be forked, in a daemonic process, and in a secondary
    thread.
    """
    process, thread = multiprocessing.current_process(), threading.current_thread()
    if START != "fork" or process.daemon or thread is not threading.main_thread():
        return 1
    return torch.get_num_threads()


class Workers(Generic[Job, Result]):
    """Processes that start with the first jobs and wait for more until they are closed.

    Their data, such as the weights, must not change meanwhile.

    Args:
        count: number of processes.
        ready: context manager that yields the function from a job to its result.
    """

    def __init__(
        self, count: int, ready: Callable[[], AbstractContextManager[Callable[[Job], Result]]]
    ) -> None:
        self._count, self._ready = count, ready
        self._pool: ProcessPoolExecutor | None = None

    def results(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """Yield each job's number and result, in order of completion.

        Raises:
            UserError: a process was killed.
        """
        pool = self._pool = self._pool or self._started()
        with worker_deaths("set generation.workers=1, or a lower generation.batch_size"):
            numbers = {pool.submit(_work, job): number for number, job in enumerate(jobs)}
            for done in as_completed(numbers):
                yield numbers[done], done.result()

    def _started(self) -> ProcessPoolExecutor:
        if START != "fork":
            return worker_pool(self._count, START, _make_ready, self._ready)
        with self._ready() as work:  # in this process, so that forks share packed weights, too
            pool = worker_pool(self._count, START, _begin, work)
            pool.submit(int)
        return pool

    def close(self, now: bool = False) -> None:
        """End the processes. Args: now: without waiting for their jobs."""
        if self._pool is None:
            return
        if now:
            for process in (self._pool._processes or {}).values():
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> "Workers[Job, Result]":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(now=error is not None)


_held = ExitStack()  # in a worker, for its lifetime
_works: list[Callable[[Any], Any]] = []


def _begin(work: Callable[[Any], Any]) -> None:
    torch.set_num_threads(1)
    _works.append(work)


def _make_ready(ready: Callable[[], AbstractContextManager[Callable[[Any], Any]]]) -> None:
    _begin(_held.enter_context(ready()))


def _work(job: Any) -> Any:
    return _works[-1](job)
