"""Real connections: clients that are slow, that speak no HTTP, and that are too many."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager

import pytest

from seqattn.extras.serve.guard import Guard
from seqattn.extras.serve.http_server import bound, server_of
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import Metrics

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
SECONDS = 0.4
BIG = 32_000_000


class App:
    """Says how long a body was; sleeps at /slow, sends much at /flood."""

    def __init__(self):
        self.left = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        message = await receive()
        if scope["path"] == "/slow":
            await asyncio.sleep(3 * SECONDS)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/flood":
            for _ in range(BIG // 100_000):
                await send(
                    {"type": "http.response.body", "body": b" " * 100_000, "more_body": True}
                )
            self.left.set()
        await send({"type": "http.response.body", "body": b"%d" % len(message["body"])})


@contextmanager
def listening(limits, app=None):
    server = server_of(Guard(app or App(), (), (), limits, Metrics(), ()), limits)
    with bound("127.0.0.1", 0) as on:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [on]})
        thread.start()
        try:
            yield on.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def port():
    with listening(Limits(body_bytes=1_000, read_seconds=60)) as number:
        yield number


@pytest.fixture(scope="module")
def hasty():
    with listening(Limits(read_seconds=SECONDS)) as number:
        yield number


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read(client):
    """Everything until the server ends the connection."""
    parts = []
    while part := client.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def answer(port, *parts):
    """The statuses and the last body."""
    with connected(port) as client:
        for part in parts:
            client.sendall(part)
        whole = read(client)
    statuses = [int(line.split()[1]) for line in whole.split(b"\r\n") if b"HTTP/1.1 " in line]
    return statuses, whole.rpartition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("head", [b"", b"G", GET[:-2] % b"/"])
def test_a_head_that_does_not_come_ends_the_connection(hasty, head):
    statuses, body = answer(hasty, head)
    line = f"the request head did not arrive within {SECONDS} seconds"
    assert (statuses, json.loads(body)) == ([408], {"error": line})


@pytest.mark.parametrize(
    "begun",
    [
        b"Content-Length: 10\r\n\r\nabc",
        b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
    ],
)
def test_a_body_that_does_not_come_ends_the_connection(hasty, begun):
    statuses, body = answer(hasty, POST + begun)
    line = f"the request body did not arrive within {SECONDS} seconds"
    assert (statuses[-1], json.loads(body)) == (408, {"error": line})


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x00\xc8\x01\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000,
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_told_so_in_json(port, sent):
    statuses, body = answer(port, sent)
    line = "invalid HTTP, or a request head of more than 65,536 bytes"
    assert (statuses, json.loads(body)) == ([400], {"error": line})


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_told_so_when_all_of_it_was_sent(port, chunked):
    body = b" " * BIG
    if chunked:
        sent = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (BIG, body)
    else:
        sent = b"Content-Length: %d\r\n\r\n%s" % (BIG, body)
    statuses, told = answer(port, POST, sent)
    line = {"error": "a request body may have at most 1,000 bytes; split it"}
    assert (statuses, json.loads(told)) == ([413], line)


def test_a_client_that_asks_first_need_not_send_what_is_too_long(port):
    statuses, _ = answer(port, POST + b"Content-Length: 2000\r\nExpect: 100-continue\r\n\r\n")
    assert statuses == [413]


def test_an_answer_may_take_longer_than_a_head(hasty):
    assert answer(hasty, GET % b"/slow")[0] == [200]


def test_requests_after_each_other_on_one_connection_are_answered(port):
    first = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
    statuses, _ = answer(port, first * 3 + GET % b"/")
    assert statuses == [200] * 4


def test_an_upgrade_is_answered_as_a_request(port):
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert answer(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + upgrade)[0] == [200]


def test_one_connection_too_many_is_refused_and_a_place_that_is_free_again_is_taken():
    with listening(Limits(connections=2)) as port:
        with connected(port), connected(port) as second:
            second.sendall(GET[:-2] % b"/")
            with connected(port) as third:
                refused = read(third)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b'{"error": "the server has too many connections; ' in refused
            second.sendall(b"\r\n")
            assert read(second).startswith(b"HTTP/1.1 200 ")
        while answer(port, GET % b"/")[0] != [200]:
            pass


def test_a_client_that_does_not_read_its_response_is_left():
    app = App()
    with listening(Limits(read_seconds=SECONDS), app) as port, connected(port) as client:
        client.sendall(GET % b"/flood")
        assert app.left.wait(30)  # what is sent to a connection that has ended goes nowhere
        assert len(read(client)) < BIG
