"""Server-sent events: what has been said so far, then what is said in the end."""

import asyncio
import gc
import json
import threading
import time
from operator import attrgetter

import pytest
import torch
from starlette.exceptions import HTTPException

from seqattn.extras.serve import service as serving
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.model_thread import Alone
from seqattn.extras.serve.schemas import ExplainRequest, GenerateRequest, SentenceRequest
from seqattn.extras.serve.searches import Gone, passes_watched
from seqattn.extras.serve.service import Service
from seqattn.generation.stepper import Stepper
from tests.extras.serve.conftest import TEXT, ask, client_of, refusal


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
    assert line.startswith("unknown choice generation=gredy")


def test_a_client_that_goes_ends_the_search(bundle):
    service = Service(bundle, Limits())
    asked = GenerateRequest(inputs=[TEXT] * 3, generation="greedy", stream=True)
    told = []

    def on_event(event):
        told.append(event)
        job.leave()

    (job,) = service.reader.generate(asked, on_event).jobs
    service.thread.submit([job], service.reader)
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
        with pytest.raises(HTTPException, match="the client disconnected"):
            await service.respond(
                service.reader.generate, GenerateRequest(inputs=[TEXT] * 2), Request()
            )
        await asyncio.sleep(0.01)
        gc.collect()

    service.thread.submit([Alone(lambda left: free.wait())], service.reader)
    asyncio.run(go())
    free.set()
    service.thread.close()
    assert told == []


WRITE = attrgetter("reader.generate")
LONG = {"name": "sampling", "seed": 1, "limit": {"extra": 900, "minimum": 900}}


@pytest.mark.parametrize(
    ("read", "keys"),
    [
        (WRITE, GenerateRequest(inputs=[TEXT] * 2, generation=LONG)),
        (WRITE, GenerateRequest(inputs=TEXT, generation=LONG, **{"return": ["alignment"]})),
        (attrgetter("looks.sentence"), SentenceRequest(text=TEXT, generation=LONG)),
    ],
)
def test_a_search_without_a_stream_ends_when_its_client_leaves(bundle, monkeypatch, read, keys):
    service, steps = Service(bundle, Limits(shown_tokens=2_000)), []
    step, began, left = Stepper.step, threading.Event(), threading.Event()

    def counted(self, ids):
        steps.append(1)
        if len(steps) == 3:
            began.set()
            assert left.wait(10)
        return step(self, ids)

    class Request:
        async def receive(self):
            await asyncio.to_thread(began.wait)
            return {"type": "http.disconnect"}

    async def go():
        with pytest.raises(HTTPException, match="the client disconnected"):
            await service.respond(read(service), keys, Request())
        left.set()

    monkeypatch.setattr(Stepper, "step", counted)
    asyncio.run(go())
    service.thread.close()
    assert len(steps) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long_ends_and_the_next_is_answered(bundle, monkeypatch, stream):
    steps, step = [], Stepper.step

    def slow(self, ids):
        steps.append(1)
        time.sleep(0.05)
        return step(self, ids)

    monkeypatch.setattr(Stepper, "step", slow)
    line = "the request took longer than 0.2 seconds; shorten or split it"
    with client_of(bundle, Limits(timeout=0.2)) as client:
        if stream:
            assert events(client, inputs=TEXT, generation=LONG)[-1] == ("error", {"error": line})
        else:
            assert refusal(client, status=504, inputs=TEXT, generation=LONG) == line
        monkeypatch.setattr(Stepper, "step", step)
        ask(client, inputs=TEXT, generation="greedy")
    assert len(steps) < 50


def test_a_pass_through_the_model_ends_when_its_client_leaves(bundle):
    calls, ids = [], torch.ones(1, 3).long()

    def left():
        calls.append(1)
        return len(calls) == 12

    with passes_watched(bundle.model, left), pytest.raises(Gone):
        bundle.model(ids, ids)
    assert len(calls) == 12
    bundle.model(ids, ids)
    assert len(calls) == 12


def test_an_explanation_ends_when_its_client_leaves(bundle, monkeypatch):
    service, encode, left = Service(bundle, Limits()), bundle.model.encode, threading.Event()
    calls = []

    def counted(ids):
        calls.append(1)
        left.set()
        return encode(ids)

    monkeypatch.setattr(bundle.model, "encode", counted)
    asked = ExplainRequest(text=TEXT, method="occlusion", output="two birds")
    (job,) = service.looks.explain(asked).jobs
    with pytest.raises(Gone):
        job.work(left.is_set)
    assert len(calls) == 1
    service.thread.close()


def test_a_stream_whose_client_left_before_its_first_event_is_dropped(bundle):
    service, free = Service(bundle, Limits()), threading.Event()

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def go():
        asked = GenerateRequest(inputs=TEXT, generation="greedy", stream=True)
        response = await service.respond(service.reader.generate, asked, None)
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        assert response.job.done.cancelled()

    service.thread.submit([Alone(lambda left: free.wait(10))], service.reader)
    asyncio.run(go())
    free.set()
    service.thread.close()


def test_a_stream_that_nobody_reads_does_not_fill_the_memory(bundle, monkeypatch):
    monkeypatch.setattr(serving, "_BEHIND", 2)
    service = Service(bundle, Limits())

    async def go():
        asked = GenerateRequest(inputs=TEXT, generation=LONG, stream=True)
        job = (await service.respond(service.reader.generate, asked, None)).job
        return await asyncio.to_thread(job.done.exception, 10)

    refused = asyncio.run(go())
    service.thread.close()
    assert str(refused) == "stream closed: the client has not read 2 events"
