"""Server-sent events: what has been said so far, then what is said in the end."""

import asyncio
import gc
import json
import threading

import pytest
from starlette.exceptions import HTTPException

from seqattn.server.limits import Limits
from seqattn.server.model_thread import Alone
from seqattn.server.schemas import GenerateRequest
from seqattn.server.service import Service
from seqattn.server.texts import Gone
from tests.server.conftest import TEXT, ask, refusal


def events(client, path="/v1/generate", **keys):
    """Names and data of a stream."""
    response = client.post(path, json={"stream": True, **keys})
    assert response.headers["content-type"].startswith("text/event-stream")
    parts = [part.split("\n") for part in response.text.split("\n\n") if part]
    assert all(len(lines) == 2 for lines in parts)
    return [(name[7:], json.loads(data[6:])) for name, data in parts]


@pytest.mark.parametrize("generation", ["greedy", {"name": "sampling", "seed": 2}])
def test_each_token_is_told_and_the_end_is_the_answer_without_a_stream(client, bundle, generation):
    keys = {"inputs": [TEXT, "two birds"], "generation": generation, "return": ["tokens"]}
    *told, (name, last) = events(client, **keys)
    assert name == "done"
    assert last == ask(client, **keys)
    assert {name for name, _ in told} == {"token"}
    for place, result in enumerate(last["results"]):
        own = [data for _, data in told if data["index"] == place]
        tokens = result["outputs"][0]["tokens"]
        assert [data["token"] for data in own] == tokens[: len(own)]
        assert len(own) >= len(tokens) - 1  # the last one of a limit stands in the end alone
        texts = [data["text"] for data in own]
        ids = bundle.tokenizer.target_pieces(range(bundle.tokenizer.target_size)).index
        spelt = [[ids(piece) for piece in tokens[: n + 1]] for n in range(len(own))]
        assert texts == bundle.tokenizer.decode_target(spelt)


def test_a_beam_tells_its_best_hypothesis_so_far(client, bundle):
    *told, (name, last) = events(client, inputs=TEXT, generation={"beam_size": 3})
    assert name == "done"
    assert last == ask(client, inputs=TEXT, generation={"beam_size": 3})
    assert {name for name, _ in told} == {"best"}
    # of two tokens, the best of three is what the widest search over two finds
    best = bundle.hypotheses(TEXT, beam_size=3, limit={"_target_": LIMIT, "ratio": 0, "extra": 1})
    assert told[0][1]["text"] == bundle.tokenizer.decode_target([best[0][0].ids])[0]


LIMIT = "seqattn.generation.LengthLimit"


def test_a_stream_that_fails_says_so_in_its_last_event(client):
    edit = {"attention": "decoder.layers.0.cross_attention", "step": 99, "key": 0, "weight": 1}
    *told, (name, last) = events(client, inputs=TEXT, intervene={"weights": [edit]})
    assert told
    assert name == "error"
    assert last["error"].startswith("intervene.weights: step 99 of ")
    line = refusal(client, inputs=TEXT, generation="gredy", stream=True)  # before it begins
    assert line.startswith("there is no generation=gredy")


def test_a_client_that_goes_ends_the_search(bundle):
    service = Service(bundle, Limits())
    asked = GenerateRequest(inputs=[TEXT] * 3, generation="greedy", stream=True)
    gone, told = threading.Event(), []

    def tell(event):
        told.append(event)
        gone.set()

    job = service.reader.stream(asked, service.reader.read(asked), tell, gone)
    service.thread.submit([job])
    assert isinstance(job.done.exception(timeout=10), Gone)
    assert len(told) == 1
    service.thread.close()


def test_clients_that_go_while_they_wait_leave_nothing_on_the_servers_output(bundle):
    service, free, told = Service(bundle, Limits()), threading.Event(), []

    class Request:
        async def receive(self):
            await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

    async def go():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        with pytest.raises(HTTPException, match="the client has gone"):
            await service.generate(GenerateRequest(inputs=[TEXT] * 2), Request())
        await asyncio.sleep(0.01)
        gc.collect()

    service.thread.submit([Alone(free.wait)])
    asyncio.run(go())
    free.set()
    service.thread.close()
    assert told == []
