"""Worker processes that end with this one, or those of a Dask cluster."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from seqattn.errors import UserError
from seqattn.installation import install
from seqattn.processes import worker_deaths, worker_pool

Result = TypeVar("Result")


class _Here(Executor):
    """Executor in this process, running work immediately."""

    def submit(self, work: Callable[..., Result], /, *args: Any, **more: Any) -> Future[Result]:
        done: Future[Result] = Future()
        done.set_result(work(*args, **more))
        return done


@contextmanager
def workers(team: int | str) -> Iterator[tuple[Executor, int]]:
    """Yield an executor and its number of workers.

    Args:
        team: number of processes that end with this one, 1 for itself, or a Dask address.

    Raises:
        UserError: if a worker was killed, or Dask cannot be used.
    """
    if isinstance(team, str):
        with _dask(team) as client:
            yield client.get_executor(pure=False), sum(client.nthreads().values())
        return
    if team == 1:
        yield _Here(), 1
        return
    pool = worker_pool(team, "spawn")
    try:
        with worker_deaths("repeat the command with a lower workers=N to resume"):
            yield pool, team
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _dask(address: str) -> Iterator[Any]:
    """Yield a client of the Dask scheduler at an address. Raises: as `workers`."""
    try:
        from dask import config
        from distributed import Client, KilledWorker, Security
        from distributed.comm import connect
    except ModuleNotFoundError as error:
        raise UserError(f"scheduler needs distributed; {install('dask')}") from error

    async def reach() -> None:
        (await connect(address, timeout=5, **Security().get_connection_args("client"))).abort()

    try:
        asyncio.run(asyncio.wait_for(reach(), 10))  # a client waits for other servers forever
        client = Client(address)
    except (OSError, ValueError, TypeError, MemoryError) as error:
        raise UserError(f"no Dask scheduler at scheduler={address}; set tcp://HOST:PORT") from error
    with client, config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        versions = client.get_versions(packages=["seqattn-toolkit", "sentencepiece", "pyarrow"])
        here, *there = (x["packages"] for x in (versions["client"], *versions["workers"].values()))
        if not there:
            raise UserError(f"scheduler={address} has no workers; run dask worker {address}")
        if unequal := sorted({name for name in here for x in there if x.get(name) != here[name]}):
            raise UserError(f"Dask's workers have other versions; align {', '.join(unequal)}")
        try:
            yield client
        except (KilledWorker, CancelledError) as error:
            raise UserError("Dask's workers or scheduler died; see their logs") from error


def spread(pool: Executor, jobs: Iterable[Callable[[], Result]], limit: int) -> Iterator[Result]:
    """Submit jobs with at most `limit` in progress, and yield results as they complete."""
    running: set[Future[Result]] = set()
    for job in jobs:
        if len(running) >= limit:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        running.add(pool.submit(job))
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
