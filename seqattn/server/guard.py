"""What stands before every request: whom it asks for, how long its body is, how long it takes."""

import ipaddress
import time
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqattn.server.figures import Figures


class Guard:
    """Refuses foreign hosts and long bodies, and counts requests.

    A page of another site whose name is made to lead here (DNS rebinding) asks for that name: only
    addresses, `localhost` and the given names are answered.

    Args:
        app: what answers.
        hosts: names that the server goes by, beside `localhost`.
        body_bytes: of a request at most.
        figures: told of each request.
        paths: those that are counted apart.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        body_bytes: int,
        figures: Figures,
        paths: Collection[str],
    ) -> None:
        self.app, self.body_bytes, self.figures, self.paths = app, body_bytes, figures, paths
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499  # as nginx counts a client that went away

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, sent)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.figures.request(path, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check_host(headers.get("host", ""))
            body = await self._body(headers.get("content-length", ""), receive)
        except HTTPException as error:
            said = JSONResponse({"error": error.detail}, error.status_code, error.headers)
            await said(scope, receive, send)
            return
        if body is None:
            return  # the client has gone
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, again, send)

    def _check_host(self, given: str) -> None:
        name = given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() else given
        name = name.strip("[]").lower().rstrip(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if name not in self.hosts:
                raise HTTPException(
                    400, f"this server does not go by {name!r}; start it with hosts=[{name}]"
                ) from None

    async def _body(self, told: str, receive: Receive) -> bytes | None:
        """The whole body, of the length that is told; None where the client has gone."""
        line = f"a request may have {self.body_bytes:,} bytes; split it"
        too_long = HTTPException(413, line, {"Connection": "close"})
        if told.isdigit() and int(told) > self.body_bytes:
            raise too_long
        body, more = bytearray(), True
        while more:
            message: Any = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self.body_bytes:
                raise too_long
            more = message.get("more_body", False)
        return bytes(body)
