"""Worker processes that end with this one."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from seqattn.processes import worker_deaths, worker_pool

Result = TypeVar("Result")


class _Here(Executor):
    """Executor in this process, running work immediately."""

    def submit(self, work: Callable[..., Result], /, *args: Any, **more: Any) -> Future[Result]:
        done: Future[Result] = Future()
        done.set_result(work(*args, **more))
        return done


@contextmanager
def workers(count: int) -> Iterator[Executor]:
    """Yield an executor of worker processes that end with this one; for one, this process.

    Raises:
        UserError: if a worker was killed.
    """
    if count == 1:
        yield _Here()
        return
    pool = worker_pool(count, "spawn")
    try:
        with worker_deaths("repeat the command with a lower workers=N to resume"):
            yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def spread(jobs: Iterable[Callable[[], Future[Result]]], max_running: int) -> Iterator[Result]:
    """Start jobs with at most `max_running` in progress, and yield results as they complete."""
    running: set[Future[Result]] = set()
    for start in jobs:
        if len(running) >= max_running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        running.add(start())
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
