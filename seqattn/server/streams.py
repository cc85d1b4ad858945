"""Server-sent events of a job, told while the model thread is at it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from seqattn.errors import UserError
from seqattn.server.model_thread import Alone, ModelThread

FAILED = "the server has failed; its own output says where"
"""Told of what is not the client's to mend."""


class Event(NamedTuple):
    """What has been said so far, of which input."""

    place: int
    ids: list[int]


Tell = Callable[[Event], None]


def streamed(
    thread: ModelThread,
    make: Callable[[Tell, threading.Event], Alone],
    told: Callable[[Event], str],
    last: Callable[[Any], str],
) -> AsyncIterator[str]:
    """The events of a job, which is queued when this returns and ends when the client goes.

    Args:
        thread: runs it.
        make: makes it, of whom to tell and of what is set when the client has gone.
        told: the text of an event.
        last: the data of the last one, of what comes of the job.

    Raises:
        HTTPException: where the queue is full.
    """
    loop, gone = asyncio.get_running_loop(), threading.Event()
    events: asyncio.Queue[Event | None] = asyncio.Queue()

    def tell(event: Event | None) -> None:
        loop.call_soon_threadsafe(events.put_nowait, event)

    job = make(tell, gone)
    thread.submit([job])
    job.done.add_done_callback(lambda done: tell(None))

    async def given() -> AsyncIterator[str]:
        try:
            while (event := await events.get()) is not None:
                yield told(event)
            try:
                found = job.done.result()
            except Exception as error:
                line = str(error) if isinstance(error, UserError) else FAILED
                yield sent("error", json.dumps({"error": line}))
                if line == FAILED:
                    raise
            else:
                yield sent("done", last(found))
        finally:
            gone.set()
            job.done.cancel()

    return given()


def sent(name: str, data: str) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {data}\n\n"
