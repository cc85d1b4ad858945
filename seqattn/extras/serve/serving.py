"""A socket, and uvicorn on it until a signal."""

import signal
import socket
from types import FrameType
from typing import Any

import uvicorn

from seqattn.errors import UserError
from seqattn.extras.serve.connections import HEAD_BYTES, connection
from seqattn.extras.serve.limits import Limits


def bound(host: str, port: int) -> socket.socket:
    """A socket that has its address, so that nobody else takes it while a model is loaded.

    Raises:
        UserError: where it cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(1_024)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"host={host} port={port} cannot be had: {why}; choose another") from error
    return made


def address_of(made: socket.socket) -> str:
    """The address of a bound socket, for a browser."""
    host, port = made.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Any, on: socket.socket, limits: Limits) -> None:
    """Answers until SIGINT or SIGTERM; requests that run then have half a minute to end.

    Raises:
        KeyboardInterrupt: after SIGINT.
        SystemExit: with 143 after SIGTERM.
    """

    def terminated(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminated)  # uvicorn hands the signal on when all is done
    signal.signal(signal.SIGINT, signal.default_int_handler)
    server_of(app, limits).run(sockets=[on])


def server_of(app: Any, limits: Limits) -> uvicorn.Server:
    """An HTTP/1.1 server. Args: limits: as `connection`."""
    config = uvicorn.Config(
        app,
        http=connection(limits),
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES,
        log_level="error",  # a warning for each request that is no HTTP would fill the output
        access_log=False,
        timeout_graceful_shutdown=30,
    )
    return uvicorn.Server(config)
