"""uvicorn on a socket, closing connections to clients that are slow or do not speak HTTP."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seqattn.errors import UserError
from seqattn.extras.serve.limits import Limits

HEAD_BYTES = 65_536
_LINGER = 1.0  # seconds in which a client may still read the reason for closing


class Connection(H11Protocol):
    """uvicorn connection with time limits for request heads and for reading responses.

    uvicorn itself waits forever for the first head, and responds in plain text.
    """

    limits: ClassVar[Limits]
    timers: dict[str, asyncio.TimerHandle]
    refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timers = {}
        transport.set_write_buffer_limits(high=0)  # so that any bytes left call `pause_writing`
        if len(self.connections) > self.limits.connections:
            self.refuse(503, "the server has too many connections; try again in a second")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self.timers.values():
            timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("response", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("response")

    def send_400_response(self, msg: str) -> None:
        """Reject a request that is not HTTP."""
        if self.cycle is not None and self.cycle.response_started != self.cycle.response_complete:
            self.transport.abort()  # a response cannot interrupt another one
        else:
            self.refuse(400, f"invalid HTTP, or a request head of more than {HEAD_BYTES:,} bytes")

    def refuse(self, status: int, line: str) -> None:
        """Respond in place of the application, and close the connection."""
        self.refused = True
        body = json.dumps({"error": line}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        self._start("linger", self.transport.abort, _LINGER)

    def _await_head(self) -> None:
        """Limit the time for a head, from its first byte or from the start of the connection."""
        if self.refused or not (self.cycle is None or self.cycle.response_complete):
            self._stop("head")
        elif "head" not in self.timers:
            self._start("head", self._late)

    def _late(self) -> None:
        if self.conn.our_state is h11.IDLE:
            seconds = self.limits.read_seconds
            self.refuse(408, f"the request head did not arrive within {seconds:g} seconds")
        else:  # the request was answered, but its body does not end
            self.transport.abort()

    def _start(self, name: str, then: Callable[[], None], seconds: float | None = None) -> None:
        self._stop(name)
        seconds = self.limits.read_seconds if seconds is None else seconds
        self.timers[name] = self.loop.call_later(seconds, then)

    def _stop(self, name: str) -> None:
        if timer := self.timers.pop(name, None):
            timer.cancel()


def bound(host: str, port: int) -> socket.socket:
    """Return a bound socket, reserving the address while a model is loaded.

    Raises:
        UserError: if the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1_024)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UserError(f"cannot bind host={host} port={port}: {why}; choose another") from error


def address_of(bound_socket: socket.socket) -> str:
    """Return the address of a bound socket, for a browser."""
    host, port = bound_socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: Any, limits: Limits) -> uvicorn.Server:
    """Return an HTTP/1.1 server. Args: limits: `connections` and `read_seconds` are used."""
    config = uvicorn.Config(
        app,
        http=type("Connection", (Connection,), {"limits": limits}),
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES,
        log_level="error",  # no warning for each request that is not HTTP
        access_log=False,
        timeout_graceful_shutdown=30,
        workers=1,  # otherwise read from WEB_CONCURRENCY
        proxy_headers=False,  # otherwise trusted from FORWARDED_ALLOW_IPS
    )
    return uvicorn.Server(config)


def serve(app: Any, on: socket.socket, limits: Limits) -> None:
    """Serve until SIGINT or SIGTERM; then requests in progress have half a minute to finish.

    Raises:
        KeyboardInterrupt: after SIGINT.
        SystemExit: with 143 after SIGTERM.
    """

    def terminated(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminated)  # uvicorn raises the signal again at the end
    signal.signal(signal.SIGINT, signal.default_int_handler)
    server_of(app, limits).run(sockets=[on])
