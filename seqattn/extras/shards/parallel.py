"""Processes that work beside this one, and end when it does."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from seqattn.errors import UserError
from seqattn.processes import follow_parent

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
    # forked ones would inherit threads, and this process's memory
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), follow_parent)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise UserError(
            "a worker died, perhaps for want of memory; give the same command again, which goes "
            "on from here, with workers=N for fewer"
        ) from error
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
