"""Processes that work beside this one, and end when it does."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from seqattn.processes import worker_deaths, worker_pool

Result = TypeVar("Result")


class _Here(Executor):
    """Works in this process, at once."""

    def submit(self, work: Callable[..., Result], /, *args: Any, **more: Any) -> Future[Result]:
        done: Future[Result] = Future()
        done.set_result(work(*args, **more))
        return done


@contextmanager
def workers(count: int) -> Iterator[Executor]:
    """Processes that work beside this one, and end when it does; one alone is this one.

    Raises:
        UserError: one was killed.
    """
    if count == 1:
        yield _Here()
        return
    pool = worker_pool(count, "spawn")
    try:
        with worker_deaths("repeat the command, with workers=N for fewer, to go on from here"):
            yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def spread(jobs: Iterable[Callable[[], Future[Result]]], most: int) -> Iterator[Result]:
    """Starts jobs so that few wait at a time, and yields the results as they come."""
    running: set[Future[Result]] = set()
    for start in jobs:
        if len(running) >= most:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        running.add(start())
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
