"""Checks before every request: host name, origin, size of the body, and time limits."""

import asyncio
import ipaddress
import time
from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import Metrics


class Guard:
    """ASGI middleware that rejects foreign hosts, origins and long bodies, and counts requests.

    With DNS rebinding, a page of another site reaches this server under that site's host name, so
    only requests to IP addresses, `localhost` and the given names are answered. A form of another
    site is sent without asking first (no CORS preflight), so its origin is checked here.

    Args:
        app: the application.
        hosts: host names of the server, besides `localhost`.
        cors: other origins whose pages may send requests; `*` for all.
        limits: `body_bytes`, `file_bytes`, `files` and `read_seconds` are used.
        metrics: counts each request.
        paths: paths that are counted separately.
        file_paths: those of requests with files.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        cors: Collection[str],
        limits: Limits,
        metrics: Metrics,
        paths: Collection[str],
        file_paths: Collection[str] = (),
    ) -> None:
        self.app, self.limits, self.metrics, self.paths = app, limits, metrics, paths
        self.cors, self.file_paths, self.files = cors, file_paths, 0
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499  # nginx's status if the client disconnects

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        is_file = scope["path"] in self.file_paths
        self.files += is_file
        try:
            with ExitStack() as scope["at_end"]:
                await self._answer(scope, receive, sent, is_file)
        finally:
            self.files -= is_file
            path = scope["path"] if scope["path"] in self.paths else "other"
            seconds = time.perf_counter() - began
            self.metrics.request(path, status, seconds, scope.get("model", ""))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, is_file: bool) -> None:
        headers = Headers(scope=scope)
        try:
            body = await self._body(headers, receive, is_file)
            self._check_host(headers.get("host", ""))
            self._check_origin(headers)
        except HTTPException as error:
            said = JSONResponse({"error": error.detail}, error.status_code, error.headers)
            await said(scope, receive, send)
            return
        if body is None:
            return  # the client has disconnected
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, again, send)

    def _check_host(self, host: str) -> None:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.strip("[]").lower().rstrip(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if name not in self.hosts:
                raise HTTPException(
                    400, f"unknown host name {name!r}; start the server with hosts=[{name}]"
                ) from None

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")  # browsers send it with POST
        if origin is None or {origin, "*"} & {*self.cors}:
            return
        if origin.partition("://")[2].lower() != headers.get("host", "").lower():
            raise HTTPException(
                403, f"pages of {origin!r} may not ask; start the server with cors=[{origin}]"
            )

    async def _body(self, headers: Headers, receive: Receive, is_file: bool) -> bytes | None:
        """Return the complete body; None if the client has disconnected.

        A body that is too long is read to its end and discarded, since few clients read a response
        before they have sent all of it.
        """
        body, content_length = bytearray(), headers.get("content-length", "")
        is_full = is_file and self.files > self.limits.files
        largest = self.limits.file_bytes if is_file else self.limits.body_bytes
        long = is_full or (content_length.isdigit() and float(content_length) > largest)

        async def read() -> bool:
            nonlocal long
            more = not (long and "expect" in headers)  # the client waits for permission to send
            while more:
                message: Any = await receive()
                if message["type"] == "http.disconnect":
                    return False
                long = long or len(body) + len(message["body"]) > largest
                if long:
                    body.clear()
                else:
                    body.extend(message["body"])
                more = message.get("more_body", False)
            return True

        seconds, close = self.limits.read_seconds, {"Connection": "close"}
        try:
            if not await asyncio.wait_for(read(), seconds):
                return None
        except TimeoutError:
            if not long:
                line = f"the request body did not arrive within {seconds:g} seconds"
                raise HTTPException(408, line, close) from None
        if is_full:
            line = "the server translates other files; try again in a second"
            raise HTTPException(503, line, {**close, "Retry-After": "1"})
        if long:
            line = f"a request body may have at most {largest:,} bytes; split it"
            raise HTTPException(413, line, close)
        return bytes(body)
