"""Server-sent events of a job, told while the model thread is at it."""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from seqattn.errors import UserError
from seqattn.extras.serve.model_thread import Alone, ModelThread

FAILED = "the server has failed; its own output says where"
"""Told of what is not the client's to mend."""
_BEHIND = 4_096  # events that a client has not read yet, each of which holds all tokens so far


class Event(NamedTuple):
    """What has been said so far, of which input."""

    place: int
    ids: "array[int]"


Tell = Callable[[Event], None]


class EventStream(StreamingResponse):
    """The events of a job that ends when the client leaves, be it before the first event."""

    def __init__(self, events: AsyncIterator[str], job: Alone) -> None:
        super().__init__(events, media_type="text/event-stream")
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.leave()


def streamed(
    thread: ModelThread,
    make: Callable[[Tell], Alone],
    told: Callable[[Event], str],
    last: Callable[[Any], str],
) -> EventStream:
    """Queues a job and gives the response that tells of it.

    Args:
        thread: runs it.
        make: makes it, of whom to tell.
        told: the text of an event.
        last: the data of the last one, of what comes of the job.

    Raises:
        HTTPException: where the queue is full.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(event: Event | None) -> None:
        loop.call_soon_threadsafe(events.put_nowait, event)

    def tell(event: Event) -> None:
        if events.qsize() >= _BEHIND:
            raise UserError(f"the stream ends: {_BEHIND:,} events have not been read")
        put(event)

    job = make(tell)
    thread.submit([job])
    job.done.add_done_callback(lambda done: put(None))

    async def given() -> AsyncIterator[str]:
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

    return EventStream(given(), job)


def sent(name: str, data: str) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {data}\n\n"
