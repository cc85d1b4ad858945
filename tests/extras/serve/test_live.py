"""Real sockets: many clients at once, clients that go, and the end."""

import asyncio
import json
import re
import signal

import pytest

from tests.extras.serve.conftest import TEXT
from tests.extras.serve.live import answered, request, said_so_far, served

pytestmark = pytest.mark.slow
SEARCHES = ["greedy", {"beam_size": 3}, {"name": "sampling", "seed": 5}, None]
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def server(home):
    with served(home) as (process, port):
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def bodies():
    """Fifty requests of one to three texts, of four searches, some of which go alone."""
    for number in range(50):
        texts = [" ".join(WORDS[n:] + WORDS[: number % 4]) for n in range(number % 3 + 1)]
        body = {"inputs": texts, "generation": SEARCHES[number % 4], "return": ["tokens"]}
        if number % 9 == 8:
            body["intervene"] = {"uniform": ["decoder.*"]}
        if number % 10 == 7:
            body["return"] = ["tokens", "alignment"]
        yield body


def test_fifty_clients_at_once_get_what_each_would_get_alone(server):
    async def together():
        return await asyncio.gather(*(answered(server, body) for body in bodies()))

    async def in_turn():
        return [await answered(server, body) for body in bodies()]

    alone, at_once = asyncio.run(in_turn()), asyncio.run(together())
    assert {status for status, _ in alone} == {200}
    assert at_once == alone
    _, text = asyncio.run(answered(server, path="/metrics"))
    count = int(re.search(rb"seqattn_batch_inputs_count (\d+)", text)[1])
    inputs = float(re.search(rb"seqattn_batch_inputs_sum ([0-9.]+)", text)[1])
    assert inputs == 2 * sum(len(body["inputs"]) for body in bodies())
    assert count < 0.8 * inputs  # or nothing went together


LONG = {"name": "sampling", "seed": 1, "limit": {"extra": 300, "minimum": 300}}
STREAM = {"inputs": TEXT, "generation": LONG, "stream": True}


def test_a_client_that_goes_in_mid_stream_leaves_the_server_free(server):
    async def go():
        reader, writer = await request(server, STREAM)
        told = await reader.readuntil(b"event: token\n")
        writer.close()
        assert b"event: done" not in told
        return await asyncio.wait_for(answered(server, {"inputs": TEXT}), 10)

    before = said_so_far(server)
    assert asyncio.run(go())[0] == 200
    assert said_so_far(server) - before < 200  # of the 300 that it would have said


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "code", "told"), [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "stopped\n")]
)
def test_a_signal_lets_what_runs_end_and_takes_no_more(home, number, code, told):
    with served(home) as (process, port):

        async def stop():
            reader, _ = await request(port, STREAM)
            await reader.readuntil(b"event: token\n")
            process.send_signal(number)
            return await reader.read()

        rest = asyncio.run(stop()).decode()
        assert process.wait(60) == code
        assert process.stderr.read() == told
    last = json.loads(re.search(r"event: done\ndata: (.*)", rest)[1])
    assert len(last["results"][0]["outputs"]) == 1
