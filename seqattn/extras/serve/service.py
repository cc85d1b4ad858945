"""Service of a bundle for many clients: requests become jobs, awaited or streamed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.looks import Looks
from seqattn.extras.serve.metrics import Metrics, ModelMetrics
from seqattn.extras.serve.model_thread import Job, ModelThread, Task
from seqattn.extras.serve.questions import Spans
from seqattn.extras.serve.searches import Event, OnEvent
from seqattn.extras.serve.texts import Texts

FAILED = "internal server error; see the output of the server"
"""Response to errors that the client cannot fix."""
READERS: Mapping[str, Any] = {"text": Texts, "spans": Spans}
"""Request reader for each output type of bundles."""
_BEHIND = 4_096  # events that a client has not read yet, each with all tokens so far


class Service:
    """Service of a bundle for many clients.

    Args:
        bundle: the bundle, not modified while the service runs.
        limits: limits on its load.
        metrics, thread: those of one of several bundles.
    """

    def __init__(
        self,
        bundle: Bundle,
        limits: Limits,
        metrics: ModelMetrics | None = None,
        thread: ModelThread | None = None,
    ) -> None:
        self.bundle, self.limits = bundle, limits
        self.metrics: Any = metrics or Metrics(lambda: len(self.thread))
        self.asks = "question" in bundle.reads
        self.reader: Texts | Spans = READERS[bundle.output](bundle, limits, self.metrics)
        self.looks = Looks(self.reader)
        self.thread = ModelThread(limits) if thread is None else thread

    async def select(self, name: Any, request: Request) -> "Service":
        """Return the service of the model that a request names: this one."""
        return self

    def named(self, name: Any) -> str:
        """Return the name of the model that a request names: that of the only one."""
        return ""

    def close(self) -> None:
        """Stop once all waiting jobs are done."""
        self.thread.close()

    def writer(self, asks: bool) -> Texts:
        """Return the reader of requests to generate outputs. Args: asks: True for questions.

        Raises:
            UserError: if the bundle is of the other kind.
        """
        if self.asks != asks:
            kind = "questions; use /v1/answer" if self.asks else "texts; use /v1/generate"
            raise UserError(f"this bundle takes {kind}")
        return self.reader.writer()

    @property
    def answerer(self) -> Texts | Spans:
        """Reader of requests with questions. Raises: as `writer`."""
        return self.reader if self.asks else self.writer(asks=True)

    async def respond(self, read: Callable[..., Task], body: Any, request: Request) -> Any:
        """Return the response to a request, or its stream; jobs end when the client disconnects.

        Args:
            read: creates the work from the request and a callback for its steps.
            body: the request.
            request: the HTTP request, whose client may disconnect.

        Raises:
            HTTPException: if the queue is full, or the request takes too long.
        """
        seconds = self.limits.timeout - getattr(request, "scope", {}).pop("waited", 0.0)
        if getattr(body, "stream", False):
            return await self._streamed(partial(read, body), seconds)
        jobs, response = await run_in_threadpool(read, body)
        self.thread.submit(jobs, self.reader)
        work: asyncio.Future[Any] = asyncio.gather(*(asyncio.wrap_future(job.done) for job in jobs))
        gone: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait({work, gone}, timeout=max(0.0, seconds), return_when=first)
            if not work.done():
                if gone.done():
                    raise HTTPException(499, "the client disconnected")
                raise HTTPException(504, self._late)
            return response(await work)
        finally:
            gone.cancel()
            work.add_done_callback(_retrieve_error)
            work.cancel()
            for job in jobs:
                job.leave()

    async def _streamed(self, make: Callable[[OnEvent], Task], seconds: float) -> "EventStream":
        """Return the events of a request of one job, already queued."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event | None] = asyncio.Queue()

        def put(event: Event | None) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        def send(event: Event) -> None:
            if events.qsize() >= _BEHIND:
                raise UserError(f"stream closed: the client has not read {_BEHIND:,} events")
            put(event)

        jobs, response = await run_in_threadpool(make, send)
        self.thread.submit(jobs, self.reader)
        jobs[0].done.add_done_callback(lambda done: put(None))

        async def lines() -> AsyncIterator[str]:
            ends = loop.time() + seconds
            try:
                while event := await asyncio.wait_for(events.get(), ends - loop.time()):
                    yield self._event_line(event)
                result = response([jobs[0].done.result()])
            except TimeoutError:
                yield _sent("error", json.dumps({"error": self._late}))
            except Exception as error:
                line = str(error) if isinstance(error, UserError) else FAILED
                yield _sent("error", json.dumps({"error": line}))
                if line == FAILED:
                    raise
            else:
                yield _sent("done", _json_line(result))

        return EventStream(lines(), jobs[0])

    @property
    def _late(self) -> str:
        return f"the request took longer than {self.limits.timeout:g} seconds; shorten or split it"

    def _event_line(self, event: Event) -> str:
        """Return the server-sent event of a step of a search."""
        tokenizer, ids = self.bundle.tokenizer, event.ids.tolist()
        text = tokenizer.decode_target([ids])[0]
        token: dict[str, Any] = (
            {} if event.best else {"token": tokenizer.target_pieces(ids[-1:])[0]}
        )
        token = token if event.line is None else {"line": event.line, **token}
        data = json.dumps({"index": event.place, **token, "text": text}, ensure_ascii=False)
        return _sent("best" if event.best else "token", data)


class EventStream(StreamingResponse):
    """Events of a job that ends when the client disconnects, even before the first event."""

    def __init__(self, events: AsyncIterator[str], job: Job) -> None:
        super().__init__(events, media_type="text/event-stream")
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.leave()


def _sent(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


def _json_line(response: Any) -> str:
    """Return a response as one line of JSON."""
    if isinstance(response, BaseModel):
        return response.model_dump_json(exclude_none=True)
    return json.dumps(response, ensure_ascii=False, allow_nan=False)


def _retrieve_error(work: asyncio.Future[Any]) -> None:
    """Retrieve an ignored error, which asyncio would otherwise print."""
    if not work.cancelled():
        work.exception()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
